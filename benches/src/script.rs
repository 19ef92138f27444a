//! Clients that cost next to nothing: a connection that *is* its client. Reading from it gives the next request, and what is
//! written to it counts as the reply. So nearly all that is counted is the server's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use enrich_host::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// What the clients ask, and what they have to be told.
#[derive(Clone, Debug)]
pub struct Script {
    /// The bytes of the requests, which each client takes in turn.
    pub requests: Arc<[Vec<u8>]>,
    /// How each reply begins.
    pub reply_head: &'static str,
    /// How many clients there are.
    pub clients: usize,
    /// How often each client asks.
    pub times: usize,
}

/// Accepts the clients of a script, and then nobody.
#[derive(Debug)]
pub struct Clients(Vec<Client>);

/// Ends when all clients have hung up.
#[derive(Debug)]
pub struct End {
    is_open: mpsc::Receiver<()>,
    answered: Arc<AtomicUsize>,
    requests: usize,
}

impl Script {
    /// The clients, and their end.
    pub fn play(&self) -> (Clients, End) {
        let (open, is_open) = mpsc::channel(1);
        let answered = Arc::new(AtomicUsize::new(0));
        let client = |nth| Client {
            requests: self.requests.clone(),
            reply_head: self.reply_head.as_bytes(),
            next: nth,
            left: self.times,
            read: 0,
            turn: Turn::Ask,
            answered: answered.clone(),
            _open: open.clone(),
        };
        let clients = Clients((0..self.clients).map(client).collect());
        let requests = self.clients * self.times;
        (clients, End { is_open, answered: answered.clone(), requests })
    }
}

impl End {
    /// Waits for it. Panics if not all requests were answered as the script says.
    pub async fn come(mut self) {
        let _ = self.is_open.recv().await;
        assert_eq!(self.answered.load(Ordering::Relaxed), self.requests, "not all requests were answered");
    }
}

impl Iterator for Clients {
    type Item = Client;

    fn next(&mut self) -> Option<Client> {
        self.0.pop()
    }
}

impl Listener for Clients {
    type Io = Client;

    async fn accept(&mut self) -> io::Result<(Client, SocketAddr)> {
        match self.next() {
            Some(client) => Ok((client, (Ipv4Addr::LOCALHOST, 0).into())),
            None => std::future::pending().await,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    requests: Arc<[Vec<u8>]>,
    reply_head: &'static [u8],
    next: usize,
    left: usize,
    /// How much of the next request is read.
    read: usize,
    turn: Turn,
    answered: Arc<AtomicUsize>,
    _open: mpsc::Sender<()>,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The next request is there to be read.
    Ask,
    /// The server has to reply.
    Wait,
    /// The reply is there. As over a network, the server waits once for the next request, and is woken by it.
    Think,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.turn {
            Turn::Ask if self.left == 0 => Poll::Ready(Ok(())),
            Turn::Ask => {
                let rest = &self.requests[self.next % self.requests.len()][self.read..];
                let octets = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..octets]);
                if octets < rest.len() {
                    self.read += octets;
                } else {
                    (self.next, self.left, self.read) = (self.next + 1, self.left - 1, 0);
                    self.turn = Turn::Wait;
                }
                Poll::Ready(Ok(()))
            }
            Turn::Wait => Poll::Pending,
            Turn::Think => {
                self.turn = Turn::Ask;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Client {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        // A reply is one write that begins with its status and ends with the brace of its JSON.
        assert!(out.starts_with(self.reply_head) && out.ends_with(b"}"), "{}", out.escape_ascii());
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.turn = Turn::Think;
        // A server that waits for the next request already is woken as well.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(out.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
