//! Futures that are polled only after their own wake-up, and cost nothing while other events wake the task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls `future` only after its own waker has been called, not each time the task is polled.
#[derive(Debug)]
pub(crate) struct WakeGated<F> {
    future: F,
    flag: Option<Arc<WakeFlag>>,
}

#[derive(Debug)]
struct WakeFlag {
    is_woken: AtomicBool,
    task: Waker,
}

impl<F> WakeGated<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future, flag: None }
    }

    /// Returns the inner future, for example to reset a timer after it completed.
    pub(crate) fn future(&mut self) -> &mut F {
        &mut self.future
    }
}

impl<F: Future + Unpin> Future for WakeGated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let flag = match &this.flag {
            Some(flag) if flag.task.will_wake(cx.waker()) => flag,
            _ => this.flag.insert(Arc::new(WakeFlag::new(cx.waker()))),
        };
        if !flag.is_woken.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Cleared before the poll, so that a wake-up during the poll is kept for the next one.
        flag.is_woken.store(false, Ordering::Release);
        let poll = Pin::new(&mut this.future).poll(&mut Context::from_waker(&flag.clone().into()));
        if poll.is_ready() {
            // A completed future has registered no waker, so poll it again if it is reused.
            flag.is_woken.store(true, Ordering::Release);
        }
        poll
    }
}

impl WakeFlag {
    /// Returns a flag that is already set, so that the first poll reaches the future.
    fn new(task: &Waker) -> Self {
        Self { is_woken: AtomicBool::new(true), task: task.clone() }
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
