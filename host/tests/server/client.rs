//! A client that sends raw bytes.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use tokio::time::timeout;

use crate::test_server::{BODY, key};

/// Longer than any timeout of the server.
const TIMEOUT: Duration = Duration::from_secs(300);

pub struct Client<Io> {
    io: Io,
    received: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Client<Io> {
    pub fn new(io: Io) -> Self {
        Self { io, received: Vec::new() }
    }

    /// Writes bytes. Ignores errors, because the server may have closed the connection. Tests check the reply
    /// instead.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.try_write(bytes.as_ref()).await;
    }

    pub async fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await?;
        self.io.flush().await
    }

    pub async fn shut_down_sending(&mut self) {
        self.io.shutdown().await.unwrap();
    }

    /// Sends a request and returns the reply.
    pub async fn send(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.write(request).await;
        self.read_reply().await
    }

    /// Reads the next reply, which must be complete.
    pub async fn read_reply(&mut self) -> Reply {
        let head = self.read_until(b"\r\n\r\n").await;
        let body_bytes = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.received.len() < body_bytes {
            assert!(self.read().await > 0, "the body is incomplete: {head}");
        }
        let rest = self.received.split_off(body_bytes);
        let body = String::from_utf8(std::mem::replace(&mut self.received, rest)).unwrap();
        Reply { status: head[9..12].parse().unwrap(), head, body }
    }

    /// Reads until the end of the connection.
    pub async fn read_to_end(&mut self) -> String {
        while self.read().await > 0 {}
        String::from_utf8(std::mem::take(&mut self.received)).unwrap()
    }

    async fn read_until(&mut self, delimiter: &[u8]) -> String {
        loop {
            if let Some(at) = self.received.windows(delimiter.len()).position(|window| window == delimiter) {
                let rest = self.received.split_off(at + delimiter.len());
                return String::from_utf8(std::mem::replace(&mut self.received, rest)).unwrap();
            }
            let received = self.received.escape_ascii().to_string();
            assert!(self.read().await > 0, "the connection was closed after {received:?}");
        }
    }

    /// Reads available bytes and returns their number. Treats a reset as the end of the connection.
    async fn read(&mut self) -> usize {
        let read = timeout(TIMEOUT, self.io.read_buf(&mut self.received)).await;
        read.expect("the server sends something or closes the connection").unwrap_or(0)
    }
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

/// Returns the head of a valid request up to the Content-Length header.
pub fn request_head() -> String {
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n",
        key().reveal()
    )
}
