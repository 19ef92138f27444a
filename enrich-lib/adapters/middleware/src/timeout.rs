//! A timeout that costs almost nothing if the future is ready at its first poll, as with most calls to a
//! local store.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Returns the output of `answer`, or `None` if it is not ready within `budget`, with a resolution of one
/// millisecond.
///
/// Unlike tokio's timeout, it reads the clock and creates a timer only if the first poll is pending.
pub fn timeout<F: Future + Unpin>(budget: Duration, answer: F) -> Timeout<F> {
    Timeout { answer, budget, timer: None }
}

/// The future returned by [`timeout`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Timeout<F> {
    answer: F,
    budget: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future + Unpin> Future for Timeout<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(Some(answer));
        }
        let budget = self.budget;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(budget)));
        timer.as_mut().poll(cx).map(|()| None)
    }
}
