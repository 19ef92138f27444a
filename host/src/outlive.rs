//! Lookups that are finished, whoever stops waiting for them.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Runs `future` where it is awaited, which spares it a task; if it is dropped half-way, the rest runs in a task.
/// `tracker` counts it from its first moment to its last.
pub(crate) fn outlive<F>(future: F, tracker: &TaskTracker) -> Outliving<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    Outliving { future: Some(Box::pin(future)), token: tracker.token() }
}

/// See [`outlive`].
#[derive(Debug)]
pub(crate) struct Outliving<F: Future<Output: Send> + Send + 'static> {
    /// `None` once it is finished: there is nothing left to hand over.
    future: Option<Pin<Box<F>>>,
    token: TaskTrackerToken,
}

impl<F: Future<Output: Send> + Send + 'static> Future for Outliving<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.future else {
            return Poll::Pending; // polled after its end
        };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Outliving<F> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        // Without a runtime the whole process is about to end, and holds expire by themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.token.task_tracker().track_future(future));
        }
    }
}
