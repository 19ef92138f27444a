//! When a spend is answered, and how the writer is run for that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// The work of the writer, for the executor of the caller's choice.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When a spend is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk.
    #[default]
    Strict,
    /// At once. It is on the disk within 2 ms if the disk is well. A crash loses what is not there yet, in favour of the
    /// workspace; nothing is spent twice. While the disk fails, or falls behind, it is as if strict.
    Relaxed,
}

impl Durability {
    /// How long spends gather that nobody waits for.
    const GATHER: Duration = Duration::from_millis(1);

    /// Runs the writer of a ledger of this durability on a thread of its own: what a server wants. A simulation spawns it
    /// on its own executor.
    pub fn on_a_thread(self, mut work: Work) {
        thread::spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                thread::park();
                if self == Self::Relaxed {
                    thread::park_timeout(Self::GATHER);
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
