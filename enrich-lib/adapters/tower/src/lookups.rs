//! The lookups in flight, and how to wait for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The lookups in flight, those too whose clients have hung up. Cheap to clone: all clones are of the same lookups.
#[derive(Clone, Default)]
pub struct Lookups(Arc<Shared>);

#[derive(Default)]
struct Shared {
    count: AtomicUsize,
    none_left: Notify,
}

impl Lookups {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until there are none. To be awaited after the server has stopped: lookups whose clients hung up are still to be
    /// settled then. Give it a deadline.
    pub async fn finished(&self) {
        loop {
            // Enlisted before the count is looked at, so that the last one's notice can't be missed.
            let mut none_left = std::pin::pin!(self.0.none_left.notified());
            none_left.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none_left.await;
        }
    }

    /// Counts one more, until what is returned is dropped.
    pub(crate) fn begin(&self) -> InFlight {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("count", &self.count()).finish()
    }
}

/// One lookup, from its first moment to its last.
pub(crate) struct InFlight(Lookups);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Shared { count, none_left } = &*self.0.0;
        if count.fetch_sub(1, Ordering::AcqRel) == 1 {
            none_left.notify_waiters();
        }
    }
}
