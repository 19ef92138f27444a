//! The HTTP client of `lookup` and `bulk`. `conform` shares its key, its checks and its errors, and `health` its URLs.

mod error;
mod key;
mod refusal;
mod tls;

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use enrich_lib::key::ApiKey;
use enrich_lib::wire;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

pub use self::error::{Cause, RequestError};
pub use self::key::{of_flag as key_of_flag, read as read_key};
pub use self::refusal::refusal;
pub use self::tls::config as tls_config;
use crate::args::{AccessArgs, ServerArgs};
use crate::failure::{Exit, Failure};
use crate::output;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Timeout of one request. Longer than a lookup takes, unless the outcome of a commit is in doubt on the server
/// (`credits.in_doubt_ms`).
const TIMEOUT: Duration = Duration::from_secs(30);
/// Larger responses are rejected.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Maximum idle time of a connection. Shorter than a server's idle timeout, so that no request is sent on a
/// connection that the server is closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval of pings on an HTTP/2 connection with requests, and the time to answer one. Without pings, requests
/// would be sent on a connection whose data is lost until each has timed out.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The mean number of concurrent requests of an HTTP/2 connection. Servers allow about 100, and `enrich serve` 64;
/// requests that wait for others could time out.
const CONNECTION_REQUESTS_MAX: usize = 32;

/// A client for one server and API key. It reuses connections.
pub struct Client {
    /// Each has one HTTP/2 connection.
    pools: Vec<HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>>,
    /// The number of requests so far.
    requests: AtomicUsize,
    url: String,
    uri: Uri,
    authorization: HeaderValue,
    /// Whether the API key is a test key.
    pub is_test: bool,
}

/// A response of the server, of any status.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    /// Returns the id of the request in the server's log.
    pub fn request_id(&self) -> Option<&str> {
        self.headers.get(wire::REQUEST_ID)?.to_str().ok()
    }

    /// Returns the reason of an error.
    pub fn reason(&self) -> Option<&str> {
        self.headers.get(wire::ERROR_REASON)?.to_str().ok()
    }

    /// Returns the error's code in the body.
    pub fn error_code(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Body {
            error: String,
        }

        Some(serde_json::from_slice::<Body>(&self.body).ok()?.error)
    }

    /// Returns the reason and the request id for the end of an error message, or an empty text.
    pub fn note(&self) -> String {
        let reason = self.reason().map(|reason| format!("reason {reason}"));
        let id = self.request_id().map(|id| format!("request id {id}"));
        let parts: Vec<_> = reason.into_iter().chain(id).map(|part| output::printable(&part)).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }
}

impl Client {
    /// Creates a client for up to `concurrency` requests at a time.
    pub fn new(ServerArgs { url, access }: &ServerArgs, concurrency: usize) -> Result<Self, Failure> {
        let url = url.clone().or_else(|| key::variable("ENRICH_URL"));
        let url = url.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
        let uri = uri(&url, access)?;
        let is_https = uri.scheme_str() == Some("https");
        let key = key::read(access)?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| Failure::usage("the API key has invalid characters"))?;
        authorization.set_sensitive(true);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A head and its body are two writes. With Nagle's algorithm, the body waits for a delayed ACK.
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(is_https, access.tls_ca.as_deref())?)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        let mut builder = HttpClient::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        builder.timer(TokioTimer::new());
        builder.http2_keep_alive_interval(PING_INTERVAL).http2_keep_alive_timeout(PING_INTERVAL);
        let pools =
            (0..concurrency.div_ceil(CONNECTION_REQUESTS_MAX)).map(|_| builder.build(connector.clone()));
        Ok(Self {
            pools: pools.collect(),
            requests: AtomicUsize::new(0),
            url,
            uri,
            authorization,
            is_test: ApiKey::is_test(&key),
        })
    }

    /// Sends one lookup, without retries.
    pub async fn enrich(
        &self,
        email: &str,
        idempotency_key: Option<HeaderValue>,
    ) -> Result<Response, RequestError> {
        let sent = timeout(TIMEOUT, self.send(email, idempotency_key)).await;
        sent.unwrap_or(Err(RequestError::TimedOut))
    }

    async fn send(
        &self,
        email: &str,
        idempotency_key: Option<HeaderValue>,
    ) -> Result<Response, RequestError> {
        let mut request = Request::new(Full::from(serde_json::json!({ "email": email }).to_string()));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(idempotency_key.map(|key| (IDEMPOTENCY_KEY, key)));
        let pool = &self.pools[self.requests.fetch_add(1, Ordering::Relaxed) % self.pools.len()];
        let response = pool.request(request).await.map_err(|e| {
            let cause = Cause::from_error(&e);
            match e.is_connect() || error::is_not_http(&e) {
                true => RequestError::Unreachable(cause),
                false => RequestError::Disconnected(cause),
            }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|e| RequestError::Disconnected(Cause::from_error(e.as_ref())))?.to_bytes();
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    /// Converts the error of a request to the error of a command.
    pub fn failure(&self, error: RequestError) -> Failure {
        let url = &self.url;
        match error {
            RequestError::Unreachable(cause) => unreachable(url, cause),
            RequestError::Disconnected(Cause { text, .. }) => Failure::new(format!(
                "the connection to {url} failed before the response was complete: {text}"
            )),
            RequestError::TimedOut => Failure::new(format!("{url} did not respond within {TIMEOUT:?}")),
        }
    }
}

/// Returns the URI of the endpoint, whose path `url` may include. The key may be sent there.
pub fn uri(url: &str, access: &AccessArgs) -> Result<Uri, Failure> {
    let uri = server_uri(url, wire::PATH, &["http", "https"])
        .map_err(|failure| failure.advise("use a URL such as http://127.0.0.1:8080"))?;
    let host = uri.host().unwrap_or_default();
    if uri.scheme_str() != Some("https") && !access.plaintext && !is_loopback(host) {
        let failure = Failure::usage(format!("the key and emails would be sent to {host} unencrypted"));
        return Err(failure.advise("use an https:// URL, or --plaintext if the network is trusted"));
    }
    Ok(uri)
}

/// Returns the URI of `path` on a server, whose URL may include that path.
///
/// HTTP clients replace an invalid port by that of the scheme, where another server may receive the request.
pub fn server_uri(url: &str, path: &str, schemes: &[&str]) -> Result<Uri, Failure> {
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix(path).unwrap_or(base).trim_end_matches('/');
    let uri = format!("{base}{path}").parse::<Uri>().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = uri.host().unwrap_or_default();
    let port = authority.strip_prefix(host).unwrap_or_default();
    let has_port = port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let problem = match () {
        () if url.contains(['?', '#']) || authority.contains('@') => "has a user name, a query or a fragment",
        () if host.is_empty() || !schemes.contains(&uri.scheme_str().unwrap_or_default()) => {
            &format!("is not an {} URL", schemes.join(" or "))
        }
        () if !port.is_empty() && !has_port => "has an invalid port",
        () => return Ok(uri),
    };
    // It may contain a password or a token.
    let shown = if url.is_empty() || url.contains(['@', '?', '#']) { "the URL" } else { url };
    Err(Failure::usage(format!("{shown} {problem}")))
}

/// Creates the error for a server to which no connection can be made.
pub fn unreachable(url: &str, Cause { text, advice }: Cause) -> Failure {
    let failure = Failure::new(format!("cannot reach {url}: {text}")).exit(Exit::Unreachable);
    match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

/// Returns whether `host` is a loopback address or `localhost`. Other names may resolve to any machine.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}
