//! The current connection: connecting, failure and backoff.
//!
//! ```text
//!        first count            connected              it breaks
//!   Idle ──────────► Connecting ─────────► Up ────────────────────► Resting
//!                      ▲   └─────────────────────────────────────────► │
//!                      │               not connected                   │
//!                      └───────────────────────────────────────────────┘
//!                            the next count after the pause
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::error::WindowStoreError;
use crate::lock::lock;
use crate::policy::RedisPolicy;
use crate::server::{Connection, Server};

pub(crate) struct Link {
    server: Server,
    policy: RedisPolicy,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The number of consecutive connections that failed before they counted anything, including failed attempts to connect.
    failures: u32,
    dice: StdRng,
}

enum Phase {
    Idle,
    /// With the failure of the previous connection, if any.
    Connecting(Connecting, Option<WindowStoreError>),
    Up(Arc<Connection>),
    Resting {
        until: Instant,
        error: WindowStoreError,
    },
}

enum Way {
    There(Arc<Connection>),
    Coming(Connecting),
}

type Connecting = watch::Receiver<Option<Result<Arc<Connection>, WindowStoreError>>>;

impl Link {
    pub(crate) fn new(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let state = State { phase: Phase::Idle, failures: 0, dice: StdRng::seed_from_u64(seed) };
        Self { server, policy, state: Mutex::new(state) }
    }

    /// Returns the current connection. If there is none, the first count waits for a new one. Other counts wait too if the
    /// previous connection had worked; otherwise they fail at once, because Redis is probably down.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, WindowStoreError> {
        let mut connecting = match self.way()? {
            Way::There(connection) => return Ok(connection),
            Way::Coming(connecting) => connecting,
        };
        let connected = connecting.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        connected.unwrap_or(Err(WindowStoreError::GivenUp))
    }

    fn way(self: &Arc<Self>) -> Result<Way, WindowStoreError> {
        let mut state = lock(&self.state);
        let before = match &state.phase {
            Phase::Up(connection) => return Ok(Way::There(Arc::clone(connection))),
            // The attempt is in progress while the task that reports its outcome exists.
            Phase::Connecting(connecting, error) if connecting.has_changed().is_ok() => {
                return match error {
                    Some(error) if state.failures > 1 => {
                        Err(WindowStoreError::Resting(Box::new(error.clone())))
                    }
                    _ => Ok(Way::Coming(connecting.clone())),
                };
            }
            Phase::Resting { until, error } if Instant::now() < *until => {
                return Err(WindowStoreError::Resting(Box::new(error.clone())));
            }
            Phase::Resting { error, .. } => Some(error.clone()),
            Phase::Idle | Phase::Connecting(..) => None,
        };
        let (outcome, connecting) = watch::channel(None);
        state.phase = Phase::Connecting(connecting.clone(), before);
        let link = Arc::clone(self);
        // A separate task continues to connect after the count that started it has timed out.
        tokio::spawn(async move {
            let _ = outcome.send(Some(link.connect().await));
        });
        Ok(Way::Coming(connecting))
    }

    async fn connect(&self) -> Result<Arc<Connection>, WindowStoreError> {
        let within = self.policy.connect_within;
        let too_slow =
            |_| Err(WindowStoreError::Unreachable(format!("no connection within {} ms", within.as_millis())));
        let connected = timeout(within, self.server.connect()).await.unwrap_or_else(too_slow).map(Arc::new);
        let mut state = lock(&self.state);
        match &connected {
            Ok(connection) => state.phase = Phase::Up(Arc::clone(connection)),
            Err(error) => state.rest(error, &self.policy),
        }
        connected
    }

    /// Resets the failure count after a successful count.
    pub(crate) fn worked(&self) {
        lock(&self.state).failures = 0;
    }

    /// Stops using `connection` and starts the backoff. Counts in progress on it may still complete.
    pub(crate) fn lost(&self, connection: &Arc<Connection>, error: &WindowStoreError) {
        let mut state = lock(&self.state);
        // Only the first failed count of a connection starts the backoff.
        if matches!(&state.phase, Phase::Up(current) if Arc::ptr_eq(current, connection)) {
            state.rest(error, &self.policy);
        }
    }
}

impl State {
    /// Starts the backoff. After a connection that worked, the next attempt is immediate. The pauses then grow exponentially
    /// with full jitter, so that nodes do not reconnect simultaneously.
    fn rest(&mut self, error: &WindowStoreError, policy: &RedisPolicy) {
        let ceiling = match self.failures {
            0 => Duration::ZERO,
            n => policy.pause_first.saturating_mul(2_u32.saturating_pow(n - 1)).min(policy.pause_max),
        };
        self.failures = self.failures.saturating_add(1);
        let until = Instant::now() + ceiling.mul_f64(self.dice.random());
        self.phase = Phase::Resting { until, error: error.clone() };
    }
}
