//! When a spend is acknowledged, and how the writer runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// The writer's future, to be run on an executor of the caller's choice.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When a spend is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Reply after the spend is durable.
    #[default]
    Strict,
    /// Reply first, commit within 2 ms if the disk is healthy.
    ///
    /// A crash loses the unflushed spends, in favor of the workspace. No credit is spent twice. While the disk fails or
    /// falls behind, spends behave as in [`Durability::Strict`].
    Relaxed,
}

impl Durability {
    /// How long the writer collects unflushed spends before it commits them.
    const FLUSH_DELAY: Duration = Duration::from_millis(1);

    /// Runs the writer of a ledger on a dedicated thread, as a server does. A simulation runs the writer on its own
    /// executor instead.
    pub fn run_on_thread(self, mut work: Work) {
        thread::spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                thread::park();
                if self == Self::Relaxed {
                    thread::park_timeout(Self::FLUSH_DELAY);
                }
            }
        });
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
