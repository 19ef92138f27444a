//! An HTTP client for each transport of the server.

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::tls;

/// The transport between a client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1 over TCP.
    Http1,
    /// HTTP/2 over TCP, with prior knowledge.
    Http2,
    /// TLS with ALPN `http/1.1`.
    Https1,
    /// TLS with ALPN `h2` and `http/1.1`, which negotiates HTTP/2.
    Https2,
}

/// An HTTP client without a base URL or headers of its own.
pub type HttpClient = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Transport {
    pub const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::Https1, Self::Https2];

    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https1 | Self::Https2)
    }

    /// Creates an HTTP client that uses this transport only.
    pub fn client(self) -> HttpClient {
        let protocols = match self {
            Self::Http1 | Self::Http2 => &[][..],
            Self::Https1 => &["http/1.1"][..],
            Self::Https2 => &["h2", "http/1.1"][..],
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        legacy::Client::builder(TokioExecutor::new())
            .http2_only(self == Self::Http2)
            .build(HttpsConnector::from((tcp, tls::client(protocols))))
    }
}
