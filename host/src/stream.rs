//! The bytes of one connection on their way between the client and hyper: watched as they come, mended as they go. It
//! outlives hyper, which is there only while there is something to do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::pulse::Pulse;
use crate::replies;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection's bytes, after TLS.
#[derive(Debug)]
pub(crate) struct Stream<'a, Io> {
    io: Io,
    pulse: &'a Pulse,
    version: Version,
    /// What came and is not read yet.
    unread: Bytes,
    /// What is left to write of a reply that takes the place of hyper's own.
    exchange: Option<Bytes>,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

impl<'a, Io: AsyncRead + AsyncWrite + Unpin> Stream<'a, Io> {
    pub(crate) fn new(io: Io, pulse: &'a Pulse) -> Self {
        Self { io, pulse, version: Version::Http1, unread: Bytes::new(), exchange: None }
    }

    /// Waits until the first bytes tell what the client speaks.
    pub(crate) async fn open(&mut self) -> io::Result<Version> {
        loop {
            let has_ended = self.more().await? == 0;
            let common = self.unread.len().min(HTTP2_PREFACE.len());
            if has_ended || self.unread[..common] != HTTP2_PREFACE[..common] {
                return Ok(Version::Http1);
            }
            if common == HTTP2_PREFACE.len() {
                self.version = Version::Http2;
                self.pulse.begin_idle();
                return Ok(Version::Http2);
            }
        }
    }

    /// Waits for one more head to begin. Returns whether it does: the client may end its half instead.
    pub(crate) async fn reopen(&mut self) -> io::Result<bool> {
        Ok(!self.unread.is_empty() || self.more().await? > 0)
    }

    /// Waits for more bytes, and has room for them only when they are there.
    async fn more(&mut self) -> io::Result<usize> {
        /// Most requests fit in as a whole.
        const BYTES_MAX: usize = 512;

        std::future::poll_fn(|cx| {
            let mut room = [0; BYTES_MAX];
            let mut buf = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            self.unread = [&self.unread, buf.filled()].concat().into();
            Poll::Ready(Ok(buf.filled().len()))
        })
        .await
    }

    /// Takes back what hyper has read and not used: a copy, as it would keep hyper's whole buffer. Empty lines between
    /// requests are nothing (RFC 9112, 2.2).
    pub(crate) fn put_back(&mut self, unread: &[u8]) {
        let is_blank = |byte: &&u8| b"\r\n".contains(byte);
        self.unread = Bytes::copy_from_slice(&unread[unread.iter().take_while(is_blank).count()..]);
    }

    /// Ends our half, then reads what the client still sends, until it ends its half. Closing over unread bytes would
    /// reset the connection, and a reset overtakes our last reply (RFC 9112, 9.6).
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.io.shutdown().await?;
        std::future::poll_fn(|cx| {
            let mut scratch = [0; 4_096];
            loop {
                let mut buf = ReadBuf::new(&mut scratch);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
                if buf.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
        })
        .await
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Stream<'_, Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled = buf.filled().len();
        if this.unread.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        } else {
            let bytes = this.unread.split_to(this.unread.len().min(buf.remaining()));
            buf.put_slice(&bytes);
        }
        // Frames tell nothing about heads: a slow one on HTTP/2 counts as idle.
        if this.version == Version::Http1 && buf.filled().len() > filled {
            this.pulse.begin_head();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<'_, Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.pulse.let_rest(false);
        if this.version == Version::Http2 || !replies::is_bare(out) {
            return Pin::new(&mut this.io).poll_write(cx, out);
        }
        let rest = this.exchange.get_or_insert_with(|| replies::exchange(out));
        while rest.has_remaining() {
            match ready!(Pin::new(&mut this.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Ok(0)),
                written => rest.advance(written),
            }
        }
        Poll::Ready(Ok(out.len()))
    }

    /// hyper flushes once it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.pulse.let_rest(self.version == Version::Http1);
        Poll::Ready(Ok(()))
    }

    /// How the connection ends is not hyper's to say: see [`Stream::close`].
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
