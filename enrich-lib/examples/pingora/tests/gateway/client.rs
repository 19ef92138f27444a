//! A client that sends exactly the given bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::world::TIMEOUT;

/// One connection.
pub struct Client {
    tcp: TcpStream,
    came: Vec<u8>,
}

/// A complete reply: its status line and headers up to the empty line, and its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub head: String,
    pub body: String,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    pub fn of(tcp: TcpStream) -> Self {
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        tcp.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { tcp, came: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.write_all(bytes.as_ref()).unwrap();
    }

    pub fn end_sending(&mut self) {
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }

    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Reads the next reply, which must be complete.
    pub fn reply(&mut self) -> Reply {
        let head_bytes = loop {
            match self.came.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => assert!(self.read() > 0, "ended after {:?}", self.came.escape_ascii().to_string()),
            }
        };
        let head = String::from_utf8(self.came.drain(..head_bytes).collect()).unwrap();
        let body_bytes = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.came.len() < body_bytes {
            assert!(self.read() > 0, "a body was cut off: {head}");
        }
        let body = String::from_utf8(self.came.drain(..body_bytes).collect()).unwrap();
        Reply { head, body }
    }

    /// Asserts that the server closes the connection without sending more bytes. Fails on a reset.
    #[track_caller]
    pub fn assert_ended(mut self) {
        assert_eq!((self.read(), &self.came[..]), (0, &b""[..]));
    }

    fn read(&mut self) -> usize {
        let mut bytes = [0; 4_096];
        let came = loop {
            match self.tcp.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.unwrap(),
            }
        };
        self.came.extend_from_slice(&bytes[..came]);
        came
    }
}

impl Reply {
    pub fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) {
        assert_eq!((self.status(), &*self.body), (status, &*format!(r#"{{"error":"{code}"}}"#)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
