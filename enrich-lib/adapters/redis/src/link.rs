//! The current connection: connecting, failure and backoff.
//!
//! ```text
//!        first count            connected               it breaks
//!   Idle ──────────► Connecting ─────────► Connected ──────────► Backoff
//!                      ▲   └───────────────────────────────────────► │
//!                      │               not connected                 │
//!                      └─────────────────────────────────────────────┘
//!                            the next count after the pause
//! ```
//!
//! A connection that Redis has closed while no count used it is replaced as if there were none.
//!
//! The connection to a Cluster has no backoff: the other servers count on it while one fails. Its client connects again
//! to a server that closes its connection. If a server hangs, another connection may lead to its successor.

use std::sync::Arc;
use std::time::Duration;

use enrich_store::Backoff;
use enrich_store::sync::Mutex;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, timeout};

use crate::counter::Counter;
use crate::error::WindowStoreError;
use crate::policy::RedisPolicy;
use crate::server::{Connection, Server};

pub(crate) struct Link {
    server: Server,
    policy: RedisPolicy,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The number of consecutive connections that failed before they counted anything, including failed
    /// attempts to connect.
    failures: u32,
    backoff: Backoff,
    /// When the connection to a Cluster may be replaced.
    replaces_at: Instant,
    rng: StdRng,
}

enum Phase {
    Idle,
    /// With the failure of the previous connection, if any.
    Connecting(Connecting, Option<WindowStoreError>),
    Connected(Arc<Connection>),
    Backoff {
        until: Instant,
        error: WindowStoreError,
    },
}

enum Current {
    Connected(Arc<Connection>),
    Connecting(Connecting),
}

/// An attempt to connect. Unlike a `watch` channel, it wakes the counts that wait for it in a fixed order, on
/// which simulations depend.
type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, WindowStoreError>>>;

impl Link {
    pub(crate) fn new(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let state = State {
            phase: Phase::Idle,
            failures: 0,
            backoff: Backoff::new(policy.pause_first, policy.pause_max),
            replaces_at: Instant::now(),
            rng: StdRng::seed_from_u64(seed),
        };
        Self { server, policy, state: Mutex::new(state) }
    }

    /// Returns the current connection. If there is none, the first count waits for a new one. Other counts
    /// wait too if the previous connection had worked; otherwise they fail at once, because Redis is probably
    /// down.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, WindowStoreError> {
        match self.current()? {
            Current::Connected(connection) => Ok(connection),
            Current::Connecting(connecting) => connecting.await,
        }
    }

    fn current(self: &Arc<Self>) -> Result<Current, WindowStoreError> {
        let mut state = self.state.lock();
        let before = match &state.phase {
            Phase::Connected(connection) if !connection.has_ended() => {
                return Ok(Current::Connected(Arc::clone(connection)));
            }
            // The attempt is in progress until its task has ended, also by a panic.
            Phase::Connecting(connecting, error) if connecting.clone().now_or_never().is_none() => {
                return match error {
                    Some(error) if state.failures > 1 => {
                        Err(WindowStoreError::Unavailable(Box::new(error.clone())))
                    }
                    _ => Ok(Current::Connecting(connecting.clone())),
                };
            }
            Phase::Backoff { until, error } if Instant::now() < *until => {
                return Err(WindowStoreError::Unavailable(Box::new(error.clone())));
            }
            Phase::Backoff { error, .. } => Some(error.clone()),
            Phase::Idle | Phase::Connecting(..) | Phase::Connected(_) => None,
        };
        let link = Arc::clone(self);
        // A separate task continues to connect after the count that started it has timed out.
        let task = tokio::spawn(async move { link.connect().await });
        let outcome = async { task.await.unwrap_or(Err(WindowStoreError::Aborted)) };
        let connecting = outcome.boxed().shared();
        state.phase = Phase::Connecting(connecting.clone(), before);
        Ok(Current::Connecting(connecting))
    }

    async fn connect(&self) -> Result<Arc<Connection>, WindowStoreError> {
        let connected = self.server.connect(self.policy.connect_timeout).await.map(Arc::new);
        let mut state = self.state.lock();
        match &connected {
            Ok(connection) => state.phase = Phase::Connected(Arc::clone(connection)),
            Err(error) => state.back_off(error),
        }
        connected
    }

    /// Runs `work` on a connection that no count uses. The timeout of connecting also applies to `work`.
    pub(crate) async fn on_own_connection<T>(
        &self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, WindowStoreError>,
    ) -> Result<T, WindowStoreError> {
        let limit = self.policy.connect_timeout;
        let connection = self.server.connect(limit).await?;
        timeout(limit, work(&connection)).await.unwrap_or(Err(WindowStoreError::TimedOut(limit)))
    }

    /// Resets the failure count after a successful count.
    pub(crate) fn record_success(&self) {
        let mut state = self.state.lock();
        if state.failures > 0 {
            state.failures = 0;
            state.backoff.reset();
        }
    }

    /// Stops using `connection`, on which `counter` could not be counted, and starts the backoff. Counts in progress on it
    /// may still complete.
    pub(crate) fn disconnect(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        counter: &Counter,
        error: &WindowStoreError,
    ) {
        let mut state = self.state.lock();
        // Only the first failed count of a connection starts the backoff.
        if !state.uses(connection) {
            return;
        }
        if !connection.is_to_cluster() {
            return state.back_off(error);
        }
        if state.replaces_at <= Instant::now() {
            let random = state.rng.random();
            state.replaces_at = Instant::now() + state.backoff.next_pause_with_jitter(random);
            tokio::spawn(Arc::clone(self).replace(Arc::clone(connection), counter.clone()));
        }
    }

    /// Connects to the Cluster again, and stops using `before` if `counter` can then be counted. Without its server, the
    /// client would delay the counts of all others while it tries to connect.
    async fn replace(self: Arc<Self>, before: Arc<Connection>, counter: Counter) {
        let Ok(connection) = self.server.connect(self.policy.connect_timeout).await else { return };
        if let Ok(Ok(_)) = timeout(self.policy.timeout, connection.count(&counter, 0)).await {
            let mut state = self.state.lock();
            if state.uses(&before) {
                state.phase = Phase::Connected(Arc::new(connection));
            }
        }
    }
}

impl State {
    fn uses(&self, connection: &Arc<Connection>) -> bool {
        matches!(&self.phase, Phase::Connected(current) if Arc::ptr_eq(current, connection))
    }

    /// Starts the backoff. After a connection that worked, the next attempt is immediate. The pauses then
    /// grow exponentially with full jitter, so that nodes do not reconnect simultaneously.
    fn back_off(&mut self, error: &WindowStoreError) {
        let random = self.rng.random();
        let pause = match self.failures {
            0 => Duration::ZERO,
            _ => self.backoff.next_pause_with_jitter(random),
        };
        self.failures = self.failures.saturating_add(1);
        let until = Instant::now() + pause;
        self.phase = Phase::Backoff { until, error: error.clone() };
    }
}
