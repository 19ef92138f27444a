//! The stylesheet, the script and the security headers of all replies (ASVS 5.0, 3.4).

use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::console::Console;
use crate::reference;
use crate::refusals::Refusal;

/// The stylesheet, in the head of each page.
pub(crate) const STYLE: &str = include_str!("../assets/style.css");

/// The script, at the end of each page.
pub(crate) const SCRIPT: &str = include_str!("../assets/script.js");

/// Allows only the stylesheets, the script and the icon, and forms that are sent to this application.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}' 'sha256-{}'; script-src 'sha256-{}'; img-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(reference::STYLE),
        hash(SCRIPT)
    );
    HeaderValue::try_from(policy).expect("a hash is ASCII")
});

/// Adds the security headers, and logs a refusal.
pub(crate) async fn add(
    State(console): State<Arc<Console>>,
    client: Client,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    if let Some(refusal) = response.extensions().get::<Refusal>() {
        console.log_refusal(*refusal, client.address);
    }
    let headers = response.headers_mut();
    let mut set =
        |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    // Without a referrer, browsers send the origin `null` with forms.
    set(REFERRER_POLICY, "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    if console.config.is_tls {
        set(STRICT_TRANSPORT_SECURITY, "max-age=63072000; includeSubDomains");
    }
    set(CACHE_CONTROL, "no-store");
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}
