//! An HTTP server in the process of the test.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use super::client::read_message;

/// A reply: status, raw header lines and body. `None` closes the connection instead.
pub type Reply = Option<(u16, String, String)>;

/// Starts a server. Each connection has a thread, which calls `reply` with the head and the body of a request.
pub fn start(reply: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reply = Arc::new(reply);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let reply = reply.clone();
            // A killed client breaks its connections.
            thread::spawn(move || stream.and_then(|stream| serve(stream, &*reply)));
        }
    });
    address
}

fn serve(stream: TcpStream, reply: &(impl Fn(&str, &[u8]) -> Reply + ?Sized)) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let (head, body) = read_message(&mut stream)?;
        let Some((status, headers, body)) = reply(&head, &body) else { return Ok(()) };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}
