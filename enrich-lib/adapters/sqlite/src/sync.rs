//! The reply channel of the writer, in one module so that `tests/interleavings` can replace it.

#[cfg(not(shuttle))]
pub(crate) use tokio::sync::oneshot;

/// Lets the scheduler switch to another thread.
#[cfg(shuttle)]
fn switch() {
    use shuttle::sync::atomic::{AtomicBool, Ordering};

    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// Tokio's oneshot channel with a scheduling point before and after each operation. The operation itself is atomic.
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

        pub(crate) fn is_closed(&self) -> bool {
            switch();
            self.0.is_closed()
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
