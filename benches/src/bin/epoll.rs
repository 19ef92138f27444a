//! A server without HTTP: one event loop per core, which replies to each request with fixed bytes. It
//! measures the cost of the kernel.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use enrich_benches::bare;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

#[allow(clippy::print_stderr, reason = "the launcher reads the address from stderr")]
fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    eprintln!("serving http://{}", listener.local_addr()?);
    for _ in 1..thread::available_parallelism()?.get() {
        let listener = listener.try_clone()?;
        thread::spawn(move || serve(listener));
    }
    serve(listener)
}

fn serve(listener: TcpListener) -> std::io::Result<()> {
    let mut listener = mio::net::TcpListener::from_std(listener);
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1_024));
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<TcpStream> = Vec::new();
    let reply = bare::found_reply();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != LISTENER {
                answer(&mut connections[event.token().0], &reply)?;
                continue;
            }
            // Another thread may have accepted the connection.
            while let Ok((mut stream, _)) = listener.accept() {
                stream.set_nodelay(true)?;
                poll.registry().register(&mut stream, Token(connections.len()), Interest::READABLE)?;
                connections.push(stream);
            }
        }
    }
}

/// Replies to a request, which arrives in one segment.
fn answer(stream: &mut TcpStream, reply: &[u8]) -> std::io::Result<()> {
    let mut request = [0; 4_096];
    match stream.read(&mut request) {
        Ok(0) => Ok(()),
        Ok(_) => stream.write_all(reply),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) => Ok(()),
        Err(error) => Err(error),
    }
}
