//! A connection that sends raw bytes and reads replies.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The connect, read and write timeout. Long enough for slow machines; only a faulty server exceeds it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A larger reply is that of another service.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A connection: TCP, or TLS over it.
pub trait Stream: Read + Write + Send {
    /// Shuts down the sending side.
    fn end(&mut self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Connects over TCP, with all timeouts set to [`TIMEOUT`].
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect_timeout(&address, TIMEOUT)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    Ok(tcp)
}

/// Opens a connection to a server.
pub type Connect = Arc<dyn Fn() -> io::Result<Box<dyn Stream>> + Send + Sync>;

/// Returns a function that connects over TCP.
pub fn over_tcp(address: SocketAddr) -> Connect {
    Arc::new(move || Ok(Box::new(connect(address)?)))
}

/// A TLS connection.
struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Read for Tls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Tls {
    fn end(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()?;
        self.0.sock.end()
    }
}

/// Opens TLS on a connection to `host`, a name or an IP address. The configuration offers `http/1.1` only.
pub fn with_tls(mut tcp: TcpStream, host: &str, config: Arc<ClientConfig>) -> io::Result<Box<dyn Stream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    connection.complete_io(&mut tcp)?;
    Ok(Box::new(Tls(StreamOwned::new(connection, tcp))))
}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    /// Bytes received but not yet read as a reply.
    received: Vec<u8>,
    is_bytewise: bool,
    /// True if the last request was a HEAD request, whose reply has no body whatever its `content-length`.
    is_head: bool,
    /// True if the server closed the connection.
    is_closed: bool,
    /// True if the server did not send what was expected within [`TIMEOUT`].
    has_timed_out: bool,
}

/// A complete reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            received: Vec::new(),
            is_bytewise: false,
            is_head: false,
            is_closed: false,
            has_timed_out: false,
        }
    }

    /// Sends the bytes. Ignores errors, because the server may already have closed the connection after its
    /// reply.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.is_head = bytes.starts_with(b"HEAD ");
        let step = if self.is_bytewise { 1 } else { bytes.len().max(1) };
        let _ = bytes.chunks(step).try_for_each(|part| self.stream.write_all(part));
        let _ = self.stream.flush();
    }

    /// Sends each byte separately from now on.
    pub(crate) fn send_bytewise(&mut self) {
        self.is_bytewise = true;
    }

    pub(crate) fn end(&mut self) {
        let _ = self.stream.end();
    }

    /// Reads the next reply. The error describes the bytes received instead.
    pub(crate) fn reply(&mut self) -> Result<Reply, String> {
        let head_bytes = loop {
            match head_bytes(&self.received) {
                Some(bytes) => break bytes,
                None => self.read_more()?,
            }
        };
        let head: Vec<u8> = self.received.drain(..head_bytes).collect();
        let is_interim = head.get(8..10) == Some(b" 1");
        let body = if self.is_head || is_interim {
            Vec::new()
        } else if let Some(length) = header(&head, "content-length") {
            self.take(length.parse().map_err(|_| format!("content-length: {length}"))?)?
        } else if header(&head, "transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            self.chunks()?
        } else {
            return Err(format!("a reply without a length: {}", head.escape_ascii()));
        };
        Ok(Reply { head, body })
    }

    /// Returns whether the server closed the connection, and all that it sent was read.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed && self.received.is_empty()
    }

    pub(crate) fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Returns the bytes that were received after the last reply.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.received
    }

    /// Reads a chunked body, which a proxy may have made of one with a length.
    fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| format!("a chunk of size {line:?}"))?;
            body.extend(self.take(size)?);
            while !self.line()?.is_empty() && size == 0 {}
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            match self.received.windows(2).position(|window| window == b"\r\n") {
                Some(at) => {
                    let line = self.take(at + 2)?;
                    return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
                }
                None => self.read_more()?,
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, String> {
        if bytes > BODY_BYTES_MAX {
            return Err(format!("a body of {bytes} bytes"));
        }
        while self.received.len() < bytes {
            self.read_more()?;
        }
        Ok(self.received.drain(..bytes).collect())
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
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.is_closed = true;
                Ok(0)
            }
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(count)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                self.has_timed_out = true;
                Err(format!("nothing more for {TIMEOUT:?}, after: {}", self.received.escape_ascii()))
            }
            Err(_) => {
                self.is_closed = true;
                Ok(0)
            }
        }
    }
}

/// Returns the length of the first head in `bytes`, if it is complete.
pub(crate) fn head_bytes(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Returns the value of the first header with this name.
pub(crate) fn header(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}
