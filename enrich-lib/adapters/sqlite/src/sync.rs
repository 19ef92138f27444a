//! The locks and the channels, in one place, so that a test may put a scheduler's in their stead (tests/interleavings).

use std::sync::PoisonError;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(shuttle))]
pub(crate) use tokio::sync::oneshot;

/// Every critical section of this crate leaves what it guards whole, so one that panicked spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Any other thread may run here.
#[cfg(shuttle)]
fn switch() {
    use shuttle::sync::atomic::{AtomicBool, Ordering};

    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// The real channel of one value, with a switch before and after each operation. In between, nothing else runs.
#[cfg(shuttle)]
pub(crate) mod oneshot {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::sync::oneshot;
    pub(crate) use tokio::sync::oneshot::error;

    use super::switch;

    pub(crate) struct Sender<T>(oneshot::Sender<T>);

    pub(crate) struct Receiver<T>(oneshot::Receiver<T>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender(sender), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, value: T) -> Result<(), T> {
            switch();
            let sent = self.0.send(value);
            switch();
            sent
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, error::RecvError>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            switch();
            let received = Pin::new(&mut self.0).poll(cx);
            switch();
            received
        }
    }
}
