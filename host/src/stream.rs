//! The byte stream between a client and hyper.
//!
//! "All responses carry JSON bodies" (specification 4), but hyper's HTTP/1 server itself replies to malformed
//! requests with 400, 414 and 431 without a body. The stream replaces these replies with this server's reply
//! to a malformed request before they are written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::Response;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::activity::Activity;
use crate::handler::Handler;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection's byte stream, after TLS.
#[derive(Debug)]
pub(crate) struct Stream<'a, Io, H> {
    io: Io,
    activity: &'a Activity,
    handler: &'a H,
    version: Version,
    /// Bytes that are received but not yet read.
    unread: Bytes,
    /// The unwritten rest of a replacement for one of hyper's replies.
    replacement: Option<Bytes>,
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

impl<'a, Io: AsyncRead + AsyncWrite + Unpin, H> Stream<'a, Io, H> {
    pub(crate) fn new(io: Io, activity: &'a Activity, handler: &'a H) -> Self {
        Self { io, activity, handler, version: Version::Http1, unread: Bytes::new(), replacement: None }
    }

    /// Detects the HTTP version from the first bytes.
    pub(crate) async fn detect_version(&mut self) -> io::Result<Version> {
        loop {
            let has_ended = self.receive().await? == 0;
            let common = self.unread.len().min(HTTP2_PREFACE.len());
            if has_ended || self.unread[..common] != HTTP2_PREFACE[..common] {
                return Ok(Version::Http1);
            }
            if common == HTTP2_PREFACE.len() {
                self.version = Version::Http2;
                self.activity.set_http2();
                return Ok(Version::Http2);
            }
        }
    }

    /// Appends received bytes to `unread`. Returns their number. The read buffer exists only while data is
    /// available.
    async fn receive(&mut self) -> io::Result<usize> {
        /// Most requests fit into this size.
        const BUFFER_BYTES: usize = 512;

        std::future::poll_fn(|cx| {
            let mut buffer = [0; BUFFER_BYTES];
            let mut buf = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            self.unread = [&self.unread, buf.filled()].concat().into();
            Poll::Ready(Ok(buf.filled().len()))
        })
        .await
    }

    /// Shuts down the sending half.
    pub(crate) async fn shut_down(&mut self) -> io::Result<()> {
        self.io.shutdown().await
    }

    /// Shuts down the sending half, then reads and discards input until the client shuts down its half.
    /// Closing a socket with unread input resets the connection, and the reset could discard the last reply
    /// (RFC 9112, 9.6).
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.shut_down().await?;
        std::future::poll_fn(|cx| {
            let mut buffer = [0; 4_096];
            loop {
                let mut buf = ReadBuf::new(&mut buffer);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
                if buf.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
        })
        .await
    }
}

impl<Io: AsyncRead + Unpin, H> AsyncRead for Stream<'_, Io, H> {
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
        // HTTP/2 frames do not show where a head starts, so a slow head on HTTP/2 counts as idle time, except
        // the first one.
        if this.version == Version::Http1 && buf.filled().len() > filled {
            this.activity.begin_head();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin, H: Handler> AsyncWrite for Stream<'_, Io, H> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.activity.set_flushed(false);
        if this.version == Version::Http2 || !is_from_hyper(out) {
            return Pin::new(&mut this.io).poll_write(cx, out);
        }
        if this.replacement.is_none() {
            this.replacement = this.handler.malformed().map(|reply| replacement(out, &reply));
        }
        let Some(rest) = &mut this.replacement else { return Pin::new(&mut this.io).poll_write(cx, out) };
        while rest.has_remaining() {
            match ready!(Pin::new(&mut this.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Ok(0)),
                written => rest.advance(written),
            }
        }
        Poll::Ready(Ok(out.len()))
    }

    /// Flushes the output. hyper calls it after it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.activity.set_flushed(true);
        Poll::Ready(Ok(()))
    }

    /// Does nothing. The server closes the connection itself, see [`Stream::close`].
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns whether `out` is a reply that hyper generated itself. Such a reply is always at the start of a
/// write, because hyper parses a head only after it has flushed the previous reply.
fn is_from_hyper(out: &[u8]) -> bool {
    // The server's own replies end with a body, so they fail this first test.
    out.ends_with(b"\r\n\r\n")
        && out.starts_with(b"HTTP/1.")
        && lines(out).any(|line| line == b"content-length: 0")
}

/// Returns `malformed` as a replacement, with the version and date of the original. The connection closes
/// after it.
fn replacement(original: &[u8], malformed: &Response<Bytes>) -> Bytes {
    let version = original.get(..b"HTTP/1.1".len()).unwrap_or(b"HTTP/1.1");
    let body = malformed.body();

    let mut reply = BytesMut::with_capacity(256);
    reply.put(version);
    reply.put(format!(" {}\r\n", malformed.status()).as_bytes());
    for (name, value) in malformed.headers() {
        put_header(&mut reply, name.as_str(), value.as_bytes());
    }
    put_header(&mut reply, "connection", b"close");
    put_header(&mut reply, "content-length", body.len().to_string().as_bytes());
    if let Some(date) = lines(original).find_map(|line| line.strip_prefix(b"date: ")) {
        put_header(&mut reply, "date", date);
    }
    reply.put(&b"\r\n"[..]);
    reply.put(&body[..]);
    reply.freeze()
}

fn put_header(reply: &mut BytesMut, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        reply.put(part);
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}
