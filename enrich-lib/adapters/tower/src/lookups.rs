//! The lookups in flight.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The lookups in flight, including those whose clients have disconnected. Cheap to clone: clones share their state.
#[derive(Clone, Default)]
pub struct Lookups(Arc<Shared>);

#[derive(Default)]
struct Shared {
    count: AtomicUsize,
    none_left: Notify,
}

impl Lookups {
    /// Returns the number of lookups in flight.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until no lookup is in flight. Call it after the server has stopped, because lookups of disconnected clients may
    /// still be unsettled then. Use it with a timeout.
    pub async fn finished(&self) {
        loop {
            // Registers before reading the count, so that the last notification is not missed.
            let mut none_left = std::pin::pin!(self.0.none_left.notified());
            none_left.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none_left.await;
        }
    }

    /// Counts one more lookup until the returned guard is dropped.
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

/// A guard that counts one lookup as in flight.
pub(crate) struct InFlight(Lookups);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Shared { count, none_left } = &*self.0.0;
        if count.fetch_sub(1, Ordering::AcqRel) == 1 {
            none_left.notify_waiters();
        }
    }
}
