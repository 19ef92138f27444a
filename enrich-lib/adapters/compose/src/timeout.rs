//! A time limit that costs next to nothing where the answer is there already, as that of a store on the same machine mostly is.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// The answer, or `None` if it has not come within `budget`, counted in milliseconds.
///
/// Unlike tokio's, it reads the clock and makes a timer only once it has to wait.
pub fn timeout<F: Future + Unpin>(budget: Duration, answer: F) -> Timeout<F> {
    Timeout { answer, budget, timer: None }
}

/// See [`timeout`].
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
