//! An HTTP client over one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::TIMEOUT;

/// A connection for sequential requests.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
}

/// A TCP or TLS connection.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Client {
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self::over(dial(address)?))
    }

    pub fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: BufReader::new(Box::new(stream)) }
    }

    pub fn enrich(&mut self, key: &str, email: &str) -> std::io::Result<Reply> {
        let body = serde_json::json!({ "email": email }).to_string();
        let request = format!(
            "POST /api/v1/person/enrich HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read()
    }

    fn read(&mut self) -> std::io::Result<Reply> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let length =
            head.to_lowercase().split_once("content-length: ").unwrap().1.lines().next().unwrap().parse();
        let mut body = vec![0; length.unwrap()];
        self.stream.read_exact(&mut body)?;
        let status = head[9..12].parse().unwrap();
        Ok(Reply { status, head, body: serde_json::from_slice(&body).unwrap() })
    }
}

pub fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the address at which a process listens, on Linux: that of its socket with state 0A in
/// `/proc/PID/net/tcp`.
pub fn listening_address(pid: u32) -> Option<SocketAddr> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links =
        files.filter_map(|file| file.ok()?.path().read_link().ok()?.into_os_string().into_string().ok());
    let links: Vec<String> = links.collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|row| {
        let columns: Vec<_> = row.split_whitespace().collect();
        let (local, state, inode) = (columns[1], columns[3], columns[9]);
        let port = u16::from_str_radix(local.strip_prefix("0100007F:")?, 16).ok()?;
        let is_ours = state == "0A" && links.contains(&format!("socket:[{inode}]"));
        is_ours.then(|| ([127, 0, 0, 1], port).into())
    })
}
