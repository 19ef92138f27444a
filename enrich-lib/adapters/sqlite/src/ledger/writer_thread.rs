//! The thread of the writer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::Handle;

/// The writer's future, to be run on an executor of the caller's choice.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the writer of a ledger on a dedicated thread, as a server does. A simulation runs the writer on its
/// own executor instead.
pub fn run_on_thread(mut work: Work) {
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
            let pause = PAUSE.take();
            if pause.is_zero() {
                // Threads that wait for a processor queue their spends first, for fewer and larger commits.
                thread::yield_now();
            } else {
                sleep(pause);
            }
        }
    });
}

thread_local! {
    /// The pause that the writer of this thread has requested.
    static PAUSE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Pauses the writer, if it runs on its own thread. Yields once on any other executor.
pub(crate) async fn pause(time: Duration) {
    PAUSE.set(time);
    yield_once().await;
}

/// Lets the other ready tasks of the executor run.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "only the writer's own thread sleeps")]
fn sleep(time: Duration) {
    thread::sleep(time);
}

/// Wakes the thread of the writer.
struct Unpark(Thread);

impl Wake for Unpark {
    /// On a runtime, lets all ready tasks queue their spends first, so that one commit covers many of them.
    ///
    /// Tasks that are ready queue their spends before the task that is spawned here runs. Tasks that just
    /// received their reply queue theirs while it yields. If no other task is ready, the thread is woken at
    /// once.
    fn wake(self: Arc<Self>) {
        let unpark = UnparkOnDrop(self);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _unpark = unpark;
                yield_once().await;
            });
        }
    }
}

/// Wakes the thread when it is dropped, also by a runtime that ends.
struct UnparkOnDrop(Arc<Unpark>);

impl Drop for UnparkOnDrop {
    fn drop(&mut self) {
        self.0.0.unpark();
    }
}
