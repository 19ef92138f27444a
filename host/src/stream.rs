//! The bytes of one connection on their way between the client and hyper: watched as they come, mended as they go.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pulse::Pulse;
use crate::replies;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection's bytes, after TLS.
#[derive(Debug)]
pub(crate) struct Stream<Io> {
    io: Io,
    pulse: Arc<Pulse>,
    version: Version,
    /// What is left to write of a reply that takes the place of hyper's own.
    exchange: Option<Bytes>,
    is_shut: bool,
}

#[derive(Debug)]
enum Version {
    /// So many bytes have come, all of them HTTP/2's preface.
    Unknown(usize),
    Http1,
    Http2,
}

impl<Io> Stream<Io> {
    pub(crate) fn new(io: Io, pulse: Arc<Pulse>) -> Self {
        Self { io, pulse, version: Version::Unknown(0), exchange: None, is_shut: false }
    }

    fn came(&mut self, bytes: &[u8]) {
        if let Version::Unknown(matched) = self.version {
            self.version = version(matched, bytes);
            if let Version::Http2 = self.version {
                self.pulse.begin_idle();
            }
        }
        // Frames tell nothing about heads: a slow one on HTTP/2 counts as idle.
        if let Version::Http1 = self.version {
            self.pulse.begin_head();
        }
    }
}

fn version(matched: usize, bytes: &[u8]) -> Version {
    let rest = &HTTP2_PREFACE[matched..];
    let common = rest.len().min(bytes.len());
    match matched + common {
        _ if bytes[..common] != rest[..common] => Version::Http1,
        all if all == HTTP2_PREFACE.len() => Version::Http2,
        some => Version::Unknown(some),
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Stream<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let bytes = &buf.filled()[filled..];
        if !bytes.is_empty() {
            self.came(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if matches!(this.version, Version::Http2) || !replies::is_bare(out) {
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Ends our half, then reads what the client still sends, until it ends its half or the alarm goes off. Closing
    /// over unread bytes would reset the connection, and a reset overtakes our last reply (RFC 9112, 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            this.is_shut = true;
            this.pulse.begin_close();
        }
        let mut scratch = [0; 4_096];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.io).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}
