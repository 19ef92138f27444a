//! A well-behaved HTTP client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, Version, request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::world::{Tenant, World, new_key};
use super::{PATIENCE, tls};

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
}

/// An HTTP client with the API key of one workspace.
#[derive(Clone, Debug)]
pub struct Client {
    pub transport: Transport,
    pub tenant: Tenant,
    /// Scheme and address of the server.
    pub base: String,
    http: legacy::Client<HttpsConnector<HttpConnector>, Payload>,
}

impl Client {
    pub fn new(world: &World, transport: Transport, tenant: Tenant) -> Self {
        let (base, protocols) = match transport {
            Transport::Http1 | Transport::Http2 => (format!("http://{}", world.plain), &[][..]),
            Transport::Https1 => (format!("https://{}", world.tls), &["http/1.1"][..]),
            Transport::Https2 => (format!("https://{}", world.tls), &["h2", "http/1.1"][..]),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let http = legacy::Client::builder(TokioExecutor::new())
            .http2_only(transport == Transport::Http2)
            .build(HttpsConnector::from((tcp, tls::client(protocols))));
        Self { transport, tenant, base, http }
    }

    /// Returns this client with another key.
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        let tenant = Tenant { key: key.into(), ..self.tenant.clone() };
        Self { tenant, ..self.clone() }
    }

    /// Returns this client with a well-formed key that belongs to no workspace.
    pub fn stranger(&self) -> Self {
        self.with_key(new_key().reveal())
    }

    pub async fn look_up(&self, email: &str) -> Reply {
        self.post(json!({ "email": email }).to_string()).await
    }

    pub async fn post(&self, body: impl Into<Payload>) -> Reply {
        self.send(self.request().body(body.into()).unwrap()).await
    }

    /// Builds a lookup request without its body.
    pub fn request(&self) -> request::Builder {
        self.bare_request()
            .header(AUTHORIZATION, format!("Bearer {}", self.tenant.key))
            .header(CONTENT_TYPE, "application/json")
    }

    /// Builds a lookup request without its headers and body.
    pub fn bare_request(&self) -> request::Builder {
        // "POST `{base_url}/api/v1/person/enrich`" (specification 4)
        Request::post(format!("{}/api/v1/person/enrich", self.base))
    }

    /// Sends `request` and returns the whole reply.
    ///
    /// Panics unless the reply is a JSON object: "All responses carry JSON bodies" (specification 4).
    pub async fn send(&self, request: Request<Payload>) -> Reply {
        let response = timeout(PATIENCE, self.http.request(request)).await.unwrap().unwrap();
        let (head, body) = response.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        let reply = Reply {
            transport: self.transport,
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.into()).unwrap(),
        };
        assert_eq!(head.version == Version::HTTP_2, self.transport.is_http2(), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert!(reply.json().is_object(), "{reply:?}");
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

    /// Returns the value of a header that must consist of digits only: "each an integer" (specification 8.2).
    pub fn integer(&self, name: &str) -> u64 {
        let text = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{name}: {text:?}");
        text.parse().unwrap()
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

    pub fn lookup_id(&self) -> String {
        self.json()["lookup_id"].as_str().unwrap().to_owned()
    }

    /// Returns the status, headers and body without `date` and `lookup_id`, which differ in every reply.
    pub fn comparable(&self) -> (u16, Vec<(String, String)>, Value) {
        let headers = self.headers.iter().filter(|(name, _)| *name != "date");
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        headers.sort();
        let mut json = self.json();
        if let Some(id) = json.get_mut("lookup_id") {
            *id = Value::Null;
        }
        (self.status, headers, json)
    }
}

/// A request body.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    bytes: Option<Bytes>,
    is_sized: bool,
}

impl Payload {
    /// Creates a body that is sent without its length, which means chunked over HTTP/1.1.
    pub fn unsized_of(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: Some(bytes.into()), is_sized: false }
    }
}

impl<T: Into<Bytes>> From<T> for Payload {
    fn from(bytes: T) -> Self {
        Self { bytes: Some(bytes.into()), is_sized: true }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(|bytes| self.is_sized && bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if self.is_sized { SizeHint::with_exact(bytes) } else { SizeHint::default() }
    }
}
