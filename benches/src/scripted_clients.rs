//! Clients with almost no cost: each connection simulates its client. Reading from it returns the next
//! request, and a write to it counts as the reply. Nearly all counted instructions are therefore the
//! server's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use enrich_host::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// The requests of the clients, and the expected replies.
#[derive(Clone, Debug)]
pub struct ClientScript {
    /// The bytes of the requests. Each client cycles through them.
    pub requests: Arc<[Vec<u8>]>,
    /// The expected start of each reply.
    pub reply_head: &'static str,
    /// Number of clients.
    pub clients: usize,
    /// Number of requests per client.
    pub times: usize,
}

/// A listener that accepts the clients of a script and then stays pending.
#[derive(Debug)]
pub struct ScriptedClients(Vec<ScriptedClient>);

/// Completes when all clients have disconnected.
#[derive(Debug)]
pub struct Completion {
    is_open: mpsc::Receiver<()>,
    answered: Arc<AtomicUsize>,
    requests: usize,
}

impl ClientScript {
    /// Creates the clients and the handle that waits for their end.
    pub fn start(&self) -> (ScriptedClients, Completion) {
        let (open, is_open) = mpsc::channel(1);
        let answered = Arc::new(AtomicUsize::new(0));
        let client = |nth| ScriptedClient {
            requests: self.requests.clone(),
            reply_head: self.reply_head.as_bytes(),
            next: nth,
            left: self.times,
            read: 0,
            state: State::SendRequest,
            answered: answered.clone(),
            _open: open.clone(),
        };
        let clients = ScriptedClients((0..self.clients).map(client).collect());
        let requests = self.clients * self.times;
        (clients, Completion { is_open, answered: answered.clone(), requests })
    }
}

impl Completion {
    /// Waits until all clients have disconnected. Panics unless all requests were answered as expected.
    pub async fn wait(mut self) {
        let _ = self.is_open.recv().await;
        assert_eq!(self.answered.load(Ordering::Relaxed), self.requests, "not all requests were answered");
    }
}

impl Iterator for ScriptedClients {
    type Item = ScriptedClient;

    fn next(&mut self) -> Option<ScriptedClient> {
        self.0.pop()
    }
}

impl Listener for ScriptedClients {
    type Io = ScriptedClient;

    async fn accept(&mut self) -> io::Result<(ScriptedClient, SocketAddr)> {
        match self.next() {
            Some(client) => Ok((client, (Ipv4Addr::LOCALHOST, 0).into())),
            None => std::future::pending().await,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct ScriptedClient {
    requests: Arc<[Vec<u8>]>,
    reply_head: &'static [u8],
    next: usize,
    left: usize,
    /// Number of bytes of the next request that were read.
    read: usize,
    state: State,
    answered: Arc<AtomicUsize>,
    _open: mpsc::Sender<()>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next request can be read.
    SendRequest,
    /// The server must reply.
    AwaitReply,
    /// The reply has arrived. The next read is pending once and then woken, as with a request over a network.
    Yield,
}

impl AsyncRead for ScriptedClient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.state {
            State::SendRequest if self.left == 0 => Poll::Ready(Ok(())),
            State::SendRequest => {
                let rest = &self.requests[self.next % self.requests.len()][self.read..];
                let bytes = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..bytes]);
                if bytes < rest.len() {
                    self.read += bytes;
                } else {
                    (self.next, self.left, self.read) = (self.next + 1, self.left - 1, 0);
                    self.state = State::AwaitReply;
                }
                Poll::Ready(Ok(()))
            }
            State::AwaitReply => Poll::Pending,
            State::Yield => {
                self.state = State::SendRequest;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for ScriptedClient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        // A reply is one write that begins with its status and ends with the brace of its JSON.
        assert!(out.starts_with(self.reply_head) && out.ends_with(b"}"), "{}", out.escape_ascii());
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.state = State::Yield;
        // Also wakes a server that is already waiting for the next request.
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
