//! The HTTP client, with a limit on everything that the vendor controls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use enrich_lib::resolver::VendorErrorKind;
use enrich_net::{RootsError, client_config, sources, system_roots};
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{self, Error as RequestError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;
use tokio::time::timeout;
use tower::util::MapFuture;

/// Maximum size of a response body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// Timeout for establishing a TCP connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Timeout for finding the address of a host, connecting, and the TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(6);
/// Maximum accepted `Retry-After`.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// An HTTP client that all vendors can share. It uses HTTP/1.1 with pooled connections, and HTTP/2 where a
/// vendor offers it.
///
/// It follows no redirects, uses no proxy and stores no cookies. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("Client {{ .. }}")]
pub struct Client(Arc<dyn Exchange>);

/// Why an HTTPS client cannot be created.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct ClientError(#[from] RootsError);

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Incoming>, RequestError>> + Send>>;

/// A client with any connector.
trait Exchange: Send + Sync {
    fn send(&self, request: Request<Full<Bytes>>) -> ResponseFuture;
}

/// Why a body cannot be read.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error("the response body exceeds {BODY_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the response body is incomplete")]
    Incomplete,
}

impl BodyError {
    pub(crate) fn kind(&self) -> VendorErrorKind {
        match self {
            Self::TooLarge => VendorErrorKind::UnusableAnswer,
            Self::Incomplete => VendorErrorKind::InvalidResponse,
        }
    }
}

impl Client {
    /// Creates a client that uses the trust store of the system.
    pub fn new() -> Result<Self, ClientError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // An unreachable vendor has not billed anything: unlike an exceeded deadline, a connect timeout is
        // safe to retry.
        tcp.set_connect_timeout(Some(CONNECT_TIME_MAX));
        let tls = HttpsConnectorBuilder::new().with_tls_config(client_config(system_roots()?));
        // Plain HTTP is for a vendor on this machine. Descriptions allow no other use of it.
        let connector = tls.https_or_http().enable_all_versions().wrap_connector(tcp);
        // A request that receives the connection of another one leaves its own attempt to a task, which only this ends.
        let limited = |connecting| {
            Box::pin(async {
                let too_late = |_| Err("the TCP and TLS handshakes took too long".into());
                timeout(HANDSHAKE_TIME_MAX, connecting).await.unwrap_or_else(too_late)
            })
        };
        Ok(Self::over(MapFuture::new(connector, limited)))
    }

    /// Creates a client with a custom connector, for example for a simulated network or a tunnel. The
    /// connector handles TLS, and limits the time of each attempt, which continues after its request has ended.
    pub fn over<C>(connector: C) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            // Shorter than the idle timeout of most servers, which is at least 5 s, so that a request rarely uses a
            // connection that is closing.
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_max_idle_per_host(32)
            .http1_max_buf_size(64 * 1024)
            .http2_initial_stream_window_size(64 * 1024)
            .http2_max_header_list_size(64 * 1024)
            // All lookups share one connection, so it is never idle under load. Without keep-alive, a connection
            // whose peer no longer answers stays in use.
            .http2_keep_alive_interval(Duration::from_secs(2))
            .http2_keep_alive_timeout(Duration::from_secs(3))
            .build::<_, Full<Bytes>>(connector);
        Self(Arc::new(client))
    }

    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        self.0.send(request).await
    }
}

impl<C> Exchange for legacy::Client<C, Full<Bytes>>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    fn send(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        Box::pin(self.request(request))
    }
}

/// Reads a whole body. Fails as soon as it exceeds the maximum size, regardless of its `Content-Length`.
pub(crate) async fn read(body: Incoming) -> Result<Bytes, BodyError> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Err(_) => Err(BodyError::Incomplete),
    }
}

/// Returns the value of `Retry-After` (RFC 9110, 10.2.3), limited to one hour.
///
/// A date is interpreted relative to the response's own `Date`, as the vendor's clock may differ from the
/// local one.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !value.is_empty() && value.bytes().all(|c| c.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = |text: &str| httpdate::parse_http_date(text).ok();
        let now: SystemTime = date(headers.get(DATE)?.to_str().ok()?)?;
        date(value)?.duration_since(now).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Returns whether the connection failed because this process or the machine has too many open files.
pub(crate) fn is_out_of_file_descriptors(error: &RequestError) -> bool {
    /// `ENFILE` and `EMFILE` on every Unix. `io::ErrorKind` has no variants for them.
    const TOO_MANY_OPEN_FILES: [i32; 2] = [23, 24];

    sources(error).any(|error| {
        let code = error.downcast_ref().and_then(io::Error::raw_os_error);
        code.is_some_and(|code| TOO_MANY_OPEN_FILES.contains(&code))
    })
}

/// Returns whether an HTTP/2 server has certainly not processed the request (RFC 9113, 8.7).
pub(crate) fn is_unprocessed(error: &RequestError) -> bool {
    sources(error).filter_map(|error| error.downcast_ref::<h2::Error>()).any(|error| match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => error.is_remote(),
        Some(h2::Reason::NO_ERROR) => error.is_remote() && error.is_go_away(),
        _ => false,
    })
}

/// Returns why there is no response. Errors after the request was sent are not included: HTTP/2 lets the
/// server send debug data, which could contain parts of the request.
pub(crate) fn reason(error: &RequestError) -> String {
    let sources = sources(error);
    if !error.is_connect() {
        let mut errors = sources.clone().filter_map(|error| error.downcast_ref::<hyper::Error>());
        return match errors.any(hyper::Error::is_parse) {
            true => "the response is not valid HTTP".to_owned(),
            false => "the connection closed before a response".to_owned(),
        };
    }
    let tls = sources.clone().find_map(|error| error.downcast_ref());
    match (tls, sources.last()) {
        (Some(rustls::Error::InvalidCertificate(_)), _) => {
            "cannot connect: the certificate is not trusted".to_owned()
        }
        (Some(_), _) => "cannot connect: the TLS handshake failed".to_owned(),
        (None, Some(error)) => format!("cannot connect: {error}"),
        (None, None) => "cannot connect".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(http::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn parses_retry_after_as_seconds_or_date_up_to_one_hour() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (value, wait) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("3601", Some(3600)),
            ("99999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Fri, 31 Dec 2100 23:59:59 GMT", Some(3600)),
            ("", None),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
        ] {
            let found = retry_after(&headers(&[(DATE, date), (RETRY_AFTER, value)]));
            assert_eq!(found, wait.map(Duration::from_secs), "{value}");
        }
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, date)])), None, "no date to compare with");
        assert_eq!(retry_after(&headers(&[(DATE, "now"), (RETRY_AFTER, date)])), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
