//! The client of a request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use enrich_host::pages::Peer;
use http::header::USER_AGENT;
use http::request::Parts;

use crate::console::Console;
use crate::error::Error;

/// The client of a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: Option<IpAddr>,
    pub(crate) user_agent: String,
}

impl FromRequestParts<Arc<Console>> for Client {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Error> {
        let peer = parts.extensions.get::<Peer>();
        let address = peer.map(|peer| console.config.client_address.of(peer.0, &parts.headers));
        let user_agent = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
        Ok(Self { address, user_agent: user_agent.chars().take(200).collect() })
    }
}
