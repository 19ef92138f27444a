//! A TCP client that sends arbitrary bytes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::TIMEOUT;

#[derive(Debug)]
pub struct RawConnection {
    tcp: TcpStream,
    received: Vec<u8>,
}

/// A complete reply: the status line and headers up to and including the empty line, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReply {
    pub head: String,
    pub body: String,
}

impl RawConnection {
    pub async fn open(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Self { tcp, received: Vec::new() }
    }

    /// Sends `bytes`. Returns `false` if the server closed the connection before all of them were written.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        timeout(TIMEOUT, self.tcp.write_all(bytes.as_ref())).await.unwrap().is_ok()
    }

    pub async fn end_sending(&mut self) {
        let _ = self.tcp.shutdown().await;
    }

    /// Resets the connection (TCP RST).
    pub fn reset(self) {
        self.tcp.set_zero_linger().unwrap();
    }

    pub async fn ask(&mut self, request: impl AsRef<[u8]>) -> RawReply {
        self.send(request).await;
        self.reply().await
    }

    /// Returns the next reply. Panics if the connection ends before the reply is complete.
    pub async fn reply(&mut self) -> RawReply {
        self.next_reply()
            .await
            .unwrap_or_else(|| panic!("ended after {:?}", self.received.escape_ascii().to_string()))
    }

    /// Reads until the connection ends. Returns all complete replies and the remaining bytes.
    pub async fn rest(&mut self) -> (Vec<RawReply>, Vec<u8>) {
        let mut replies = Vec::new();
        while let Some(reply) = self.next_reply().await {
            replies.push(reply);
        }
        (replies, std::mem::take(&mut self.received))
    }

    /// Returns all bytes until the connection ends.
    pub async fn bytes(&mut self) -> Vec<u8> {
        while self.read().await > 0 {}
        std::mem::take(&mut self.received)
    }

    async fn next_reply(&mut self) -> Option<RawReply> {
        let head_bytes = loop {
            match self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.read().await == 0 => return None,
                None => {}
            }
        };
        let head = String::from_utf8(self.received[..head_bytes].to_vec()).ok()?;
        let body_bytes = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.received.len() < head_bytes + body_bytes {
            assert!(self.read().await > 0, "a body was cut off: {head}");
        }
        let body = String::from_utf8(self.received[head_bytes..head_bytes + body_bytes].to_vec()).unwrap();
        self.received.drain(..head_bytes + body_bytes);
        Some(RawReply { head, body })
    }

    /// Reads more bytes and returns their number: 0 if the connection has ended or was reset.
    async fn read(&mut self) -> usize {
        timeout(TIMEOUT, self.tcp.read_buf(&mut self.received)).await.unwrap().unwrap_or(0)
    }
}

impl RawReply {
    pub fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Checks for status 400 with the JSON error `invalid_request`.
    #[track_caller]
    pub fn assert_invalid_request(&self, what: &str) {
        let body = (self.status(), self.header("content-type"), self.body.as_str());
        let invalid_request = (400, Some("application/json"), r#"{"error":"invalid_request"}"#);
        assert_eq!(body, invalid_request, "{what}: {self:?}");
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A well-formed lookup request, from which tests derive malformed ones.
#[derive(Clone, Debug)]
pub struct RawRequest {
    pub key: String,
    pub body: String,
}

impl RawRequest {
    /// Returns the well-formed request.
    pub fn text(&self) -> String {
        self.with("")
    }

    /// Returns the request with additional header `lines`, each terminated by CRLF.
    pub fn with(&self, lines: &str) -> String {
        format!("{}{lines}content-length: {}\r\n\r\n{}", self.head(), self.body.len(), self.body)
    }

    /// Returns the request up to, but without, `content-length`, the empty line and the body.
    pub fn head(&self) -> String {
        format!(
            "POST /api/v1/person/enrich HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n",
            self.key
        )
    }
}
