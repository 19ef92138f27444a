//! A client that sends raw bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::world::{BODY, key};

pub struct Client<Io> {
    io: Io,
    came: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Client<Io> {
    pub fn new(io: Io) -> Self {
        Self { io, came: Vec::new() }
    }

    /// Ignores errors, because the server may have closed the connection. Tests check the reply instead.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.try_send(bytes.as_ref()).await;
    }

    pub async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await?;
        self.io.flush().await
    }

    pub async fn end_sending(&mut self) {
        self.io.shutdown().await.unwrap();
    }

    pub async fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request).await;
        self.reply().await
    }

    /// Reads the next reply, which must be complete.
    pub async fn reply(&mut self) -> Reply {
        let head = self.until(b"\r\n\r\n").await;
        let body_bytes = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.came.len() < body_bytes {
            assert!(self.read().await > 0, "the body was cut off: {head}");
        }
        let rest = self.came.split_off(body_bytes);
        let body = String::from_utf8(std::mem::replace(&mut self.came, rest)).unwrap();
        Reply { status: head[9..12].parse().unwrap(), head, body }
    }

    /// Reads until the end of the connection.
    pub async fn rest(&mut self) -> String {
        while self.read().await > 0 {}
        String::from_utf8(std::mem::take(&mut self.came)).unwrap()
    }

    async fn until(&mut self, mark: &[u8]) -> String {
        loop {
            if let Some(at) = self.came.windows(mark.len()).position(|window| window == mark) {
                let rest = self.came.split_off(at + mark.len());
                return String::from_utf8(std::mem::replace(&mut self.came, rest)).unwrap();
            }
            let came = self.came.escape_ascii().to_string();
            assert!(self.read().await > 0, "the connection ended after {came:?}");
        }
    }

    /// Treats a reset as the end of the connection.
    async fn read(&mut self) -> usize {
        self.io.read_buf(&mut self.came).await.unwrap_or(0)
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
pub fn good() -> String {
    with_headers("")
}

/// Like [`good`], with additional header lines, each ended by CRLF.
pub fn with_headers(more: &str) -> String {
    format!("{}{more}content-length: {}\r\n\r\n{BODY}", head(), BODY.len())
}

/// Returns the request up to the Content-Length header.
pub fn head() -> String {
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n",
        key().reveal()
    )
}
