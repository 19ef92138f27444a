//! Reads a request's body within limits on size and time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use enrich_lib::body::{BODY_BYTES_MAX, Body, BodyError};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// The limits on a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyLimits {
    /// The maximum size of the body, in bytes. A lookup rejects more than [`BODY_BYTES_MAX`] in any case.
    pub bytes_max: usize,
    /// The timeout for the body. It starts when the body is pending, or a chunk is empty, for the first time.
    pub timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { bytes_max: BODY_BYTES_MAX, timeout: Duration::from_secs(5) }
    }
}

pin_project! {
    /// The future of a request's body. Trailers are discarded. See
    /// [`Endpoint::read_body`](crate::Endpoint::read_body).
    ///
    /// Written by hand, because `Limited`, `frame` and `timeout` of the libraries cost 690 instructions more,
    /// 3 % of a lookup.
    #[must_use = "futures do nothing unless polled"]
    pub struct BodyFuture<B> {
        #[pin]
        body: B,
        // Started only when the body is pending: most bodies are available immediately.
        #[pin]
        timer: Option<Sleep>,
        chunks: Chunks,
        limits: BodyLimits,
    }
}

impl<B: http_body::Body> BodyFuture<B> {
    pub(crate) fn new(body: B, limits: BodyLimits) -> Self {
        Self { body, timer: None, chunks: Chunks::default(), limits }
    }
}

impl<B: http_body::Body> Future for BodyFuture<B> {
    type Output = Body;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Body> {
        let mut this = self.project();
        let bytes_left = |chunks: &Chunks| this.limits.bytes_max.saturating_sub(chunks.len());
        // Does not read a body that is certain to be too large.
        if this.body.size_hint().lower() > bytes_left(this.chunks) as u64 {
            return Poll::Ready(Err(BodyError::TooLarge));
        }
        while let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) {
            match frame {
                None => return Poll::Ready(Ok(this.chunks.take())),
                Some(Err(_)) => return Poll::Ready(Err(BodyError::CutOff)),
                Some(Ok(frame)) => {
                    let Some(data) = frame.into_data().ok().filter(Buf::has_remaining) else {
                        // Endless empty frames neither block the thread nor outlast the timeout.
                        cx.waker().wake_by_ref();
                        break;
                    };
                    if data.remaining() > bytes_left(this.chunks) {
                        return Poll::Ready(Err(BodyError::TooLarge));
                    }
                    this.chunks.push(data);
                }
            }
        }
        if this.timer.is_none() {
            this.timer.set(Some(sleep(this.limits.timeout)));
        }
        let is_too_slow = this.timer.as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        if is_too_slow { Poll::Ready(Err(BodyError::TooSlow)) } else { Poll::Pending }
    }
}

/// Omits the body, which contains an email.
impl<B> fmt::Debug for BodyFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFuture").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The data so far. A single chunk, the usual case, is not copied.
#[derive(Default)]
struct Chunks {
    first: Bytes,
    /// All chunks, if there are several. They are copied, because each one may keep a large buffer alive.
    all: BytesMut,
}

impl Chunks {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn push(&mut self, mut data: impl Buf) {
        if self.len() == 0 {
            self.first = data.copy_to_bytes(data.remaining());
        } else {
            self.all.put(std::mem::take(&mut self.first));
            self.all.put(data);
        }
    }

    fn take(&mut self) -> Bytes {
        let (first, all) = (std::mem::take(&mut self.first), std::mem::take(&mut self.all));
        if all.is_empty() { first } else { all.freeze() }
    }
}
