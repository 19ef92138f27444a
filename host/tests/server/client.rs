//! A client that sends the same requests over HTTP/1.1 and HTTP/2, and any bytes over HTTP/1.1.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::test_server::{BODY, Gate, key};

/// Longer than any timeout of the server.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The first bytes of an HTTP/2 client, with an empty SETTINGS frame.
pub const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";

/// A PING frame.
pub const PING: &str = "\0\0\u{8}\u{6}\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The first bytes of a TLS handshake.
pub const HANDSHAKE: &str = "\x16\x03\x01";

/// The byte stream of a connection.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
}

impl Version {
    pub const ALL: [Self; 2] = [Self::Http1, Self::Http2];
}

/// A connection, which is closed when the client is dropped.
pub enum Client {
    Http1(BufReader<Box<dyn Io>>),
    Http2 {
        sender: SendRequest<Full<Bytes>>,
        connection: AbortOnDropHandle<hyper::Result<()>>,
        /// The requests whose replies are not read yet.
        requests: VecDeque<AbortOnDropHandle<hyper::Result<Reply>>>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Client {
    pub fn http1(io: impl Io) -> Self {
        Self::Http1(BufReader::new(Box::new(io)))
    }

    pub async fn http2(io: impl Io) -> Self {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        Self::Http2 { sender, connection, requests: VecDeque::new() }
    }

    /// Sends a request and returns the reply.
    pub async fn send(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.write(request).await;
        self.read_reply().await
    }

    /// Sends a lookup and waits until the resolver is called.
    pub async fn start_lookup(&mut self, gate: &Gate) {
        self.write(valid_request()).await;
        gate.called().await;
    }

    /// Writes bytes, or starts a request over HTTP/2. Ignores errors, because the server may have closed the
    /// connection. Tests check the reply instead.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.try_write(bytes.as_ref()).await;
    }

    pub async fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Http1(io) => {
                io.write_all(bytes).await?;
                io.flush().await
            }
            Self::Http2 { sender, requests, .. } => {
                let response = sender.send_request(http2_request(str::from_utf8(bytes).unwrap()));
                requests.push_back(AbortOnDropHandle::new(tokio::spawn(http2_reply(response))));
                Ok(())
            }
        }
    }

    /// Reads the next reply, which must be complete.
    pub async fn read_reply(&mut self) -> Reply {
        let Self::Http1(io) = self else { return self.next_http2_reply().await.unwrap() };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            // A reset is the end of the connection, too.
            let read = in_time(io.read_line(&mut head)).await.unwrap_or(0);
            assert!(read > 0, "the connection was closed after {head:?}");
        }
        let body_bytes = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; body_bytes];
        assert!(in_time(io.read_exact(&mut body)).await.is_ok(), "the body is incomplete: {head}");
        Reply { status: head[9..12].parse().unwrap(), head, body: String::from_utf8(body).unwrap() }
    }

    /// Waits until the server drops the oldest request without a reply: with its connection, or with its
    /// stream over HTTP/2.
    pub async fn read_no_reply(&mut self) {
        match self {
            Self::Http1(_) => assert_eq!(self.read_to_end().await, ""),
            Self::Http2 { .. } => {
                let error = self.next_http2_reply().await.unwrap_err();
                assert!(format!("{error:?}").contains("INTERNAL_ERROR"), "{error:?}");
            }
        }
    }

    /// Reads until the end of the connection. Over HTTP/2, returns the error of a connection that ends
    /// without an announcement.
    pub async fn read_to_end(&mut self) -> String {
        match self {
            Self::Http1(io) => {
                let mut rest = Vec::new();
                let _ = in_time(io.read_to_end(&mut rest)).await;
                String::from_utf8(rest).unwrap()
            }
            Self::Http2 { connection, .. } => {
                let closed = in_time(connection).await.unwrap();
                closed.map_or_else(|error| error.to_string(), |()| String::new())
            }
        }
    }

    /// Resets the streams of all requests that have no reply yet.
    pub fn reset_streams(&mut self) {
        let Self::Http2 { requests, .. } = self else { panic!("HTTP/1.1 has no streams") };
        requests.clear();
    }

    async fn next_http2_reply(&mut self) -> hyper::Result<Reply> {
        let Self::Http2 { requests, .. } = self else { panic!("a client of HTTP/1.1") };
        in_time(requests.pop_front().expect("a request")).await.unwrap()
    }
}

async fn in_time<T>(operation: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, operation).await.expect("the server sends something or closes the connection")
}

/// Converts a request of HTTP/1. The authority is that of a target in absolute form, or `api.example`. A request of
/// HTTP/1.0 has none.
fn http2_request(text: &str) -> Request<Full<Bytes>> {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let mut start = lines.next().unwrap().split(' ');
    let (method, target) = (start.next().unwrap(), start.next().unwrap());
    let has_default = target.starts_with('/') && start.next() != Some("HTTP/1.0");
    let authority = if has_default { "http://api.example" } else { "" };
    let request = Request::builder().method(method).uri(format!("{authority}{target}"));
    let headers = lines.map(|line| line.split_once(':').unwrap());
    let request = headers.fold(request, |request, (name, value)| request.header(name, value.trim()));
    request.body(Full::from(body.to_owned())).unwrap()
}

async fn http2_reply(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> hyper::Result<Reply> {
    let (head, body) = response.await?.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().into()).unwrap();
    let lines = head.headers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    Ok(Reply { status: head.status.as_u16(), head: lines.collect(), body })
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns whether the reply is a complete JSON 400 `invalid_request`.
    pub fn is_invalid_request(&self) -> bool {
        self.status == 400
            && self.header("content-type") == Some("application/json")
            && self.body == r#"{"error":"invalid_request"}"#
    }

    /// Asserts the status of a reply after which the server closes its connection.
    pub fn assert_last(&self, status: u16, name: &str) {
        assert_eq!((self.status, self.header("connection")), (status, Some("close")), "{name}: {self:?}");
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns a lookup request that succeeds.
pub fn valid_request() -> String {
    request_with_headers("")
}

/// Like [`valid_request`], with additional header lines, each ended by CRLF.
pub fn request_with_headers(more: &str) -> String {
    format!("{}{more}content-length: {}\r\n\r\n{BODY}", request_head(), BODY.len())
}

/// Like [`valid_request`], with another body.
pub fn request_with_body(body: &str) -> String {
    format!("{}content-length: {}\r\n\r\n{body}", request_head(), body.len())
}

/// Returns the head of a valid request up to the Content-Length header.
pub fn request_head() -> String {
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n",
        key().reveal()
    )
}
