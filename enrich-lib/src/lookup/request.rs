//! The input of a lookup.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::body::Body;
use crate::context::RequestContext;
use crate::key::{KeyDigest, KeyId};
use crate::receipt::IdempotencyKey;

/// The input of a lookup. [`crate::wire::request`] creates it from an HTTP request.
#[derive(Clone)]
#[non_exhaustive]
pub struct Request {
    /// The digest of the bearer key, or `None` if the key is missing or malformed.
    pub key: Option<KeyDigest>,
    /// The body, or the reason why it is unavailable. It is checked after the key and the burst limit.
    pub body: Body,
    /// The idempotency key, if there is one. A malformed one is an error of the body.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The context, if there is any.
    pub context: Option<Arc<RequestContext>>,
}

impl Request {
    /// Creates a request without an idempotency key and without a context.
    pub fn new(key: Option<KeyDigest>, body: Body) -> Self {
        Self { key, body, idempotency_key: None, context: None }
    }

    /// Replaces the key by the id of one that the gateway has found already. The lookup then runs on
    /// [`Service::for_workspace`](crate::drive::Service::for_workspace).
    #[must_use]
    pub fn authenticated(self, key: KeyId) -> Self {
        Self { key: Some(KeyDigest::from_id(key)), ..self }
    }

    /// Adds the client's address, for the log.
    #[must_use]
    pub fn from_client(self, client: IpAddr) -> Self {
        let context = self.context.map(Arc::unwrap_or_clone).unwrap_or_default();
        let context = RequestContext { client: Some(client), ..context };
        Self { context: Some(context.into()), ..self }
    }
}

/// Shows the length of the body, which contains an email.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, body, idempotency_key, context } = self;
        f.debug_struct("Request")
            .field("key", key)
            .field("body_bytes", &body.as_ref().map(Bytes::len))
            .field("idempotency_key", idempotency_key)
            .field("context", context)
            .finish()
    }
}
