//! The `Windows` port. Counts of a window that arrive during a round trip are sent together in the next one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;
use enrich_net::{Connect, Replies, ReplySender, reply_channel};
use enrich_store::sync::Mutex;
use enrich_store::{ClockSkew, ServerClock};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connect::OpenError;
use crate::counter::Counter;
use crate::error::WindowStoreError;
use crate::link::Link;
use crate::policy::RedisPolicy;
use crate::server::Server;
use crate::url::{Login, RedisUrl};

/// Rate-limit windows counted by Redis or Valkey, shared by all nodes. The first count connects. Requires a
/// tokio runtime.
pub struct RedisWindows {
    shared: Arc<Shared>,
    clock: ServerClock,
}

impl RedisWindows {
    /// Creates the windows of the server or Cluster at `url`. `seed` seeds the jitter of reconnects. Does not
    /// connect.
    pub fn open(url: &RedisUrl, policy: RedisPolicy, seed: u64) -> Result<Self, OpenError> {
        Ok(Self::of(Server::open(url, policy.timeout)?, policy, seed))
    }

    /// Creates the windows of one server, reached through `connect`.
    pub fn new(connect: Arc<dyn Connect>, login: Login, policy: RedisPolicy, seed: u64) -> Self {
        Self::of(Server::One { connect, login }, policy, seed)
    }

    fn of(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let link = Arc::new(Link::new(server, policy, seed));
        let shared = Arc::new(Shared { link, timeout: policy.timeout, batches: Mutex::default() });
        Self { shared, clock: ServerClock::default() }
    }

    /// Checks that Redis is reachable, accepts the user and the password, and can count. Counts nothing, and
    /// uses a connection of its own.
    pub async fn check(&self) -> Result<(), WindowStoreError> {
        let checked = self.shared.link.on_own_connection(async |connection| {
            let counter = Counter::of_check(connection.time().await?);
            // The first count creates the counter, and the second changes it, which needs other permissions.
            for _ in 0..2 {
                connection.count(&counter, 0).await?;
            }
            Ok(())
        });
        checked.await
    }

    /// Compares the node's clock, which `now` reads, with Redis's clock, on a connection of its own. In a
    /// Cluster, it is the clock of a random node.
    pub async fn compare_clocks(&self, now: impl Fn() -> Timestamp) -> Result<ClockSkew, WindowStoreError> {
        let compared = self
            .shared
            .link
            .on_own_connection(async |connection| self.clock.compare(now, connection.time()).await);
        compared.await
    }

    /// Returns the result of the last [`RedisWindows::compare_clocks`] that succeeded.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        self.clock.skew()
    }
}

#[async_trait]
impl Windows for RedisWindows {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let Self { shared, .. } = self;
        let counted = match timeout(shared.timeout, shared.join(Counter::of(window))).await {
            Ok(reply) => reply.unwrap_or(Err(WindowStoreError::Aborted)),
            Err(_) => Err(WindowStoreError::TimedOut(shared.timeout)),
        };
        counted.map_err(PortError::new)
    }
}

struct Shared {
    link: Arc<Link>,
    timeout: Duration,
    /// The counters with a round trip in progress. There are at most as many as requests in progress.
    batches: Mutex<HashMap<Counter, Batch>>,
}

/// The round trips of a counter.
struct Batch {
    /// The requests waiting for the next round trip.
    waiting: Vec<Waiter>,
    task: AbortHandle,
}

/// The channel to a request that waits for its count.
type Waiter = ReplySender<Result<u64, WindowStoreError>>;

impl Shared {
    /// Adds a request to the next round trip of `counter`. If none is in progress, the round trip starts at
    /// once.
    fn join(self: &Arc<Self>, counter: Counter) -> oneshot::Receiver<Result<u64, WindowStoreError>> {
        let (waiter, count) = reply_channel();
        let mut batches = self.batches.lock();
        match batches.get_mut(&counter) {
            // A finished task has panicked or was aborted, and sends nothing.
            Some(batch) if !batch.task.is_finished() => batch.waiting.push(waiter),
            _ => {
                // A separate task completes the round trip even if all requests are cancelled, so that a
                // failure of the connection is detected.
                let task = tokio::spawn(Arc::clone(self).run(counter.clone())).abort_handle();
                batches.insert(counter, Batch { waiting: vec![waiter], task });
            }
        }
        count
    }

    /// Makes round trips until no request is waiting.
    async fn run(self: Arc<Self>, counter: Counter) {
        while let Some(waiters) = self.take_waiting(&counter) {
            let requests = waiters.len() as u64;
            let counted = self.round_trip(&counter, requests).await;
            let before = counted.map(|count| count - requests);
            let mut replies = Replies::default();
            for (number, waiter) in (1..).zip(waiters) {
                replies.add(waiter, before.clone().map(|before| before + number));
            }
            replies.send();
        }
    }

    /// Takes the waiting requests, except cancelled ones. If none remain, removes the counter and returns
    /// `None`.
    fn take_waiting(&self, counter: &Counter) -> Option<Vec<Waiter>> {
        let mut batches = self.batches.lock();
        let mut waiters = std::mem::take(&mut batches.get_mut(counter)?.waiting);
        waiters.retain(|waiter| !waiter.is_closed());
        if waiters.is_empty() {
            batches.remove(counter);
            return None;
        }
        Some(waiters)
    }

    async fn round_trip(&self, counter: &Counter, requests: u64) -> Result<u64, WindowStoreError> {
        let deadline = Instant::now() + self.timeout;
        let timed_out = WindowStoreError::TimedOut(self.timeout);
        let connection =
            timeout_at(deadline, self.link.connection()).await.unwrap_or_else(|_| Err(timed_out.clone()))?;
        let counted =
            timeout_at(deadline, connection.count(counter, requests)).await.unwrap_or(Err(timed_out));
        match &counted {
            Ok(_) => self.link.record_success(),
            Err(error) if error.is_connection_error() => self.link.disconnect(&connection, error),
            Err(_) => {}
        }
        counted
    }
}

impl fmt::Debug for RedisWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisWindows").field("timeout", &self.shared.timeout).finish_non_exhaustive()
    }
}
