//! A well-behaved HTTP client.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::workspace::TestWorkspace;
use super::{TIMEOUT, tls};

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

impl Transport {
    pub const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::Https1, Self::Https2];

    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Https2)
    }

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

/// An HTTP client without a base URL or headers of its own.
pub type HttpClient = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// An HTTP client with the API key of one workspace.
#[derive(Clone, Debug)]
pub struct Client {
    pub transport: Transport,
    pub workspace: TestWorkspace,
    /// Scheme and address of the server.
    pub base: String,
    http: HttpClient,
}

impl Client {
    pub fn new(base: String, transport: Transport, workspace: TestWorkspace) -> Self {
        Self { transport, workspace, base, http: transport.client() }
    }

    pub async fn look_up(&self, email: &str) -> Reply {
        // "POST `{base_url}/api/v1/person/enrich`" (specification 4)
        let request = Request::post(format!("{}/api/v1/person/enrich", self.base))
            .header(AUTHORIZATION, format!("Bearer {}", self.workspace.key))
            .header(CONTENT_TYPE, "application/json");
        self.send(request.body(json!({ "email": email }).to_string().into()).unwrap()).await
    }

    /// Sends `request` and returns the whole reply.
    ///
    /// Panics unless the reply is a JSON object with a request id: "All responses carry JSON bodies" (specification 4).
    async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let response = timeout(TIMEOUT, self.http.request(request)).await.unwrap().unwrap();
        let (head, body) = response.into_parts();
        let body = timeout(TIMEOUT, body.collect()).await.unwrap().unwrap().to_bytes();
        let reply = Reply {
            transport: self.transport,
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.into()).unwrap(),
        };
        assert_eq!(head.version == Version::HTTP_2, self.transport.is_http2(), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert!(reply.json().is_object(), "{reply:?}");
        assert!(reply.request_id().starts_with("lookup_"), "{reply:?}");
        assert!(reply.json().get("lookup_id").is_none_or(|id| id == reply.request_id()), "{reply:?}");
        reply
    }
}

/// A complete reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub transport: Transport,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    /// Returns the value of a header. Panics if the header occurs more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        assert!(self.headers.get_all(name).iter().count() <= 1, "{name} twice: {self:?}");
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Checks that the body holds the error code and nothing else: "No other fields are present" (specification 2.4).
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.json()), (status, json!({ "error": code })), "{self:?}");
    }

    #[track_caller]
    pub fn assert_status(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
    }

    pub fn request_id(&self) -> &str {
        self.header("request-id").unwrap_or_else(|| panic!("no request-id: {self:?}"))
    }
}
