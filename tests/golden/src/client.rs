//! A connection that sends raw bytes and reads replies.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The connect, read and write timeout. Long enough for slow machines; only a faulty server exceeds it.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Client {
    tcp: TcpStream,
    /// Bytes received but not yet read as a reply.
    received: Vec<u8>,
    is_bytewise: bool,
    /// True if the last request was a HEAD request, whose reply has no body whatever its `content-length`.
    is_head: bool,
}

/// A complete reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&address, TIMEOUT)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { tcp, received: Vec::new(), is_bytewise: false, is_head: false })
    }

    /// Sends the bytes. Ignores errors, because the server may already have closed the connection after its
    /// reply.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.is_head = bytes.starts_with(b"HEAD ");
        let step = if self.is_bytewise { 1 } else { bytes.len().max(1) };
        let _ = bytes.chunks(step).try_for_each(|part| self.tcp.write_all(part));
    }

    /// Sends each byte separately from now on.
    pub(crate) fn send_bytewise(&mut self) {
        self.is_bytewise = true;
    }

    pub(crate) fn end(&mut self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    /// Reads the next reply. The error describes the bytes received instead.
    pub(crate) fn reply(&mut self) -> Result<Reply, String> {
        let head_bytes = loop {
            match self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.read_more()?,
            }
        };
        let head: Vec<u8> = self.received.drain(..head_bytes).collect();
        let is_interim = head.get(8..10) == Some(b" 1");
        let body_bytes = if self.is_head || is_interim { 0 } else { content_length(&head)? };
        while self.received.len() < body_bytes {
            self.read_more()?;
        }
        let body = self.received.drain(..body_bytes).collect();
        Ok(Reply { head, body })
    }

    /// Waits until the server closes the connection. Fails if the server sends anything before.
    pub(crate) fn closed(&mut self) -> Result<(), String> {
        loop {
            if !self.received.is_empty() {
                return Err(format!("received more: {}", self.received.escape_ascii()));
            }
            if self.read()? == 0 {
                return Ok(());
            }
        }
    }

    fn read_more(&mut self) -> Result<(), String> {
        match self.read()? {
            0 => Err(format!("the connection ended after: {}", self.received.escape_ascii())),
            _ => Ok(()),
        }
    }

    /// Reads more bytes and returns their number, or 0 if the connection was closed or reset.
    fn read(&mut self) -> Result<usize, String> {
        let mut bytes = [0; 4_096];
        match self.tcp.read(&mut bytes) {
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(count)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(format!("nothing more for {TIMEOUT:?}, after: {}", self.received.escape_ascii()))
            }
            Err(_) => Ok(0),
        }
    }
}

fn content_length(head: &[u8]) -> Result<usize, String> {
    let head = String::from_utf8_lossy(head);
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse().ok());
    length.ok_or_else(|| format!("a reply without a length: {}", head.escape_debug()))
}
