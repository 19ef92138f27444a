//! The `Windows` port. Counts of a window that arrive during a round trip are sent together in the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;
use enrich_net::Connect;
use enrich_store::batch::{BatchReceiver, BatchSender, Job, Replies, Reply, batch_queue};
use enrich_store::sync::Mutex;
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
#[derive(derive_more::Debug)]
#[debug("RedisWindows {{ timeout: {:?}, .. }}", shared.timeout)]
pub struct RedisWindows {
    shared: Arc<Shared>,
}

impl RedisWindows {
    /// Creates the windows of the server or Cluster at `url`. `seed` seeds the jitter of reconnects. Does not
    /// connect.
    pub fn open(url: &RedisUrl, policy: RedisPolicy, seed: u64) -> Result<Self, OpenError> {
        Ok(Self::of(Server::open(url, policy)?, policy, seed))
    }

    /// Creates the windows of one server, reached through `connect`.
    pub fn new(connect: Arc<dyn Connect>, login: Login, policy: RedisPolicy, seed: u64) -> Self {
        Self::of(Server::One { connect, login }, policy, seed)
    }

    fn of(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let link = Arc::new(Link::new(server, policy, seed));
        Self { shared: Arc::new(Shared { link, timeout: policy.timeout, queues: Mutex::default() }) }
    }

    /// Checks that Redis is reachable, accepts the user and the password, and can count the requests of a node
    /// whose time is `now` within the timeout. Counts nothing, and uses a connection of its own.
    pub async fn check(&self, now: Timestamp) -> Result<(), WindowStoreError> {
        let (counter, limit) = (Counter::of_check(now), self.shared.timeout);
        let checked = self.shared.link.on_own_connection(async |connection| {
            // Loads the script if Redis does not have it, which takes longer.
            connection.count(&counter, 0).await?;
            // The first count creates the counter, and the others change it, which needs other permissions. One that is
            // slow does not show that all are.
            for _ in 0..2 {
                if let Ok(counted) = timeout(limit, connection.count(&counter, 0)).await {
                    return counted.map(drop);
                }
            }
            Err(WindowStoreError::TimedOut(limit))
        });
        checked.await
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

/// The count of one request.
type Counted = Result<u64, WindowStoreError>;

struct Shared {
    link: Arc<Link>,
    timeout: Duration,
    /// The requests that wait for the next round trip of each counter with one in progress. There are at most
    /// as many counters as requests in progress.
    queues: Mutex<HashMap<Counter, BatchSender<(), Counted>>>,
}

impl Shared {
    /// Adds a request to the next round trip of `counter`. If none is in progress, the round trip starts at
    /// once.
    fn join(self: &Arc<Self>, counter: Counter) -> Reply<Counted> {
        let mut queues = self.queues.lock();
        match queues.get(&counter) {
            // A task that has panicked or was aborted has closed its queue.
            Some(queue) if !queue.is_closed() => queue.send(()),
            _ => {
                let (queue, requests) = batch_queue();
                let count = queue.send(());
                // A separate task completes the round trip even if all requests are cancelled, so that a
                // failure of the connection is detected.
                tokio::spawn(Arc::clone(self).run(counter.clone(), requests));
                queues.insert(counter, queue);
                count
            }
        }
    }

    /// Makes round trips until no request is waiting.
    async fn run(self: Arc<Self>, counter: Counter, mut queue: BatchReceiver<(), Counted>) {
        loop {
            let jobs = self.take_waiting(&counter, &mut queue);
            if jobs.is_empty() {
                return;
            }
            let requests = jobs.len() as u64;
            let counted = self.round_trip(&counter, requests).await;
            let before = counted.map(|count| count - requests);
            let mut replies = Replies::default();
            for (number, job) in (1..).zip(jobs) {
                replies.add(job, before.clone().map(|before| before + number));
            }
        }
    }

    /// Takes the waiting requests, except cancelled ones. If none remain, removes the counter.
    fn take_waiting(
        &self,
        counter: &Counter,
        queue: &mut BatchReceiver<(), Counted>,
    ) -> Vec<Job<(), Counted>> {
        let mut jobs = Vec::new();
        let mut queues = self.queues.lock();
        queue.take_queued(&mut jobs, usize::MAX);
        jobs.retain(|job| !job.is_abandoned());
        if jobs.is_empty() {
            queues.remove(counter);
        }
        jobs
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
            Err(error) if error.is_connection_error() => self.link.disconnect(&connection, counter, error),
            Err(_) => {}
        }
        counted
    }
}
