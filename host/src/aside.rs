//! Secondary futures of a task, which cost nothing while other events wake the task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls `future` only after its own waker has been called, not each time the task is polled.
#[derive(Debug)]
pub(crate) struct Aside<F> {
    future: F,
    bell: Option<Arc<Bell>>,
}

#[derive(Debug)]
struct Bell {
    has_rung: AtomicBool,
    task: Waker,
}

impl<F> Aside<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future, bell: None }
    }

    /// Returns the inner future, for example to reset a timer after it completed.
    pub(crate) fn future(&mut self) -> &mut F {
        &mut self.future
    }
}

impl<F: Future + Unpin> Future for Aside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let known = this.bell.take().filter(|bell| bell.task.will_wake(cx.waker()));
        let bell = this.bell.insert(known.unwrap_or_else(|| Arc::new(Bell::of(cx.waker()))));
        if !bell.has_rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Cleared before the poll, so that a wake-up during the poll is kept for the next one.
        bell.has_rung.store(false, Ordering::Release);
        let polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&bell.clone().into()));
        if polled.is_ready() {
            // A completed future has registered no waker, so poll it again if it is reused.
            bell.has_rung.store(true, Ordering::Release);
        }
        polled
    }
}

impl Bell {
    /// Returns a waker that is already notified, so that the first poll reaches the future.
    fn of(task: &Waker) -> Self {
        Self { has_rung: AtomicBool::new(true), task: task.clone() }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
