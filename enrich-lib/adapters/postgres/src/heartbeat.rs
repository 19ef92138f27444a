//! The heartbeat of a node, which renews its session.
//!
//! It runs on its own task and its own connection, and waits for nothing else: not for leases, not for a tick, and not for
//! lookups. A lookup that needs an active session wakes the task and waits for its next heartbeat.
//!
//! A session expires on the node before it expires in the store. The node measures the session from just *before* it sent the
//! heartbeat, on a monotonic clock, and subtracts a tenth of the lifetime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_store::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::error::PostgresError;
use crate::keys::NodeKeys;
use crate::pool::Pool;
use crate::session::{Session, Sessions};

/// The interval between two heartbeats. Must be well below the time for which a cached key is trusted.
const INTERVAL: Duration = Duration::from_millis(250);

/// The age from which [`Heartbeat::check`] reports that heartbeats have stopped. A heartbeat takes at most the timeout of a request.
const AGE_MAX: Duration = Duration::from_secs(3);

/// The heartbeat of a node.
pub(crate) struct Heartbeat {
    pool: Pool,
    name: String,
    ttl: Duration,
    sessions: Arc<Sessions>,
    keys: Arc<NodeKeys>,
    wanted: Notify,
    /// The number of heartbeats begun.
    begun: AtomicU64,
    finished: Mutex<Finished>,
    /// Wakes all lookups that wait, in order. A `watch` channel would wake them in random order.
    has_finished: Notify,
}

/// The last heartbeat that has finished.
#[derive(Clone, Debug)]
struct Finished {
    number: u64,
    at: Instant,
    error: Option<String>,
}

impl Finished {
    /// The one that registers the node.
    fn first() -> Self {
        Self { number: 0, at: Instant::now(), error: None }
    }
}

impl Heartbeat {
    /// Registers the node and begins its first session. `pool` has one connection, which nothing else uses.
    pub(crate) async fn begin(
        pool: Pool,
        name: String,
        ttl: Duration,
        sessions: Arc<Sessions>,
        keys: Arc<NodeKeys>,
    ) -> Result<Self, PostgresError> {
        let (wanted, has_finished) = (Notify::new(), Notify::new());
        let (begun, finished) = (AtomicU64::new(0), Mutex::new(Finished::first()));
        let this = Self { pool, name, ttl, sessions, keys, wanted, begun, finished, has_finished };
        this.send().await?;
        Ok(this)
    }

    /// Sends heartbeats. Never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let _ = timeout(INTERVAL, self.wanted.notified()).await;
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            let error = self.send().await.err().map(|error| error.to_string());
            *self.finished.lock() = Finished { number, at: Instant::now(), error };
            self.has_finished.notify_waiters();
        }
    }

    /// Requests a heartbeat before its regular time.
    pub(crate) fn request(&self) {
        self.wanted.notify_one();
    }

    /// Fails if the last heartbeat failed, or none has finished for [`AGE_MAX`].
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        let Finished { at, error, .. } = self.finished.lock().clone();
        match error {
            Some(error) => Err(PostgresError::NoHeartbeat(error)),
            None if at.elapsed() > AGE_MAX => Err(PostgresError::NoHeartbeat(format!(
                "the last heartbeat was {} s ago",
                at.elapsed().as_secs()
            ))),
            None => Ok(()),
        }
    }

    /// Requests a heartbeat and waits until it has finished.
    pub(crate) async fn requested(&self) -> Result<(), PostgresError> {
        let begun = self.begun.load(Ordering::Relaxed);
        self.request();
        loop {
            let next = self.has_finished.notified();
            let finished = self.finished.lock().clone();
            // One that had begun before may have been executed before.
            if finished.number > begun {
                return finished.error.map_or(Ok(()), |error| Err(PostgresError::NoSession(error)));
            }
            next.await;
        }
    }

    /// Returns the active session. If the newest session has expired, the next heartbeat renews it in the store or begins a new
    /// one.
    pub(crate) async fn active_session(&self) -> Result<Arc<Session>, PostgresError> {
        let session = self.sessions.newest();
        if session.is_active() {
            return Ok(session);
        }
        self.requested().await?;
        Ok(self.sessions.newest())
    }

    /// Sends one heartbeat. Begins the next session if the store has ended this one.
    async fn send(&self) -> Result<(), PostgresError> {
        loop {
            let requested_at = Instant::now();
            let Some(session) = self.sessions.current() else {
                let call = "SELECT node_begin($1, $2)";
                let row = self.pool.query_one(call, &[&self.name, &self.ttl_ms()]).await?;
                self.sessions.push(Session::new(row.get(0), self.end_of(requested_at)));
                continue;
            };
            let call = "SELECT is_active, revision FROM node_beat($1, $2)";
            let row = self.pool.query_one(call, &[&session.epoch, &self.ttl_ms()]).await?;
            if row.get(0) {
                session.renew(self.end_of(requested_at));
                self.keys.set_revision(row.get(1), requested_at, &self.pool).await;
                return Ok(());
            }
            session.end();
        }
    }

    /// Returns when a session expires on this node, where `requested_at` is the time just before the request was sent.
    fn end_of(&self, requested_at: Instant) -> Instant {
        requested_at + self.ttl - self.ttl / 10
    }

    fn ttl_ms(&self) -> i64 {
        i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX)
    }
}
