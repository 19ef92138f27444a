//! The one live connection: how it comes, and what happens when it goes.
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

use crate::fault::RedisFault;
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
    /// How often in a row a connection failed, or could not be made, before it had counted anything.
    failures: u32,
    dice: StdRng,
}

enum Phase {
    Idle,
    /// With why the connection before it failed.
    Connecting(Connecting, Option<RedisFault>),
    Up(Arc<Connection>),
    Resting {
        until: Instant,
        fault: RedisFault,
    },
}

enum Way {
    There(Arc<Connection>),
    Coming(Connecting),
}

type Connecting = watch::Receiver<Option<Result<Arc<Connection>, RedisFault>>>;

impl Link {
    pub(crate) fn new(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let state = State { phase: Phase::Idle, failures: 0, dice: StdRng::seed_from_u64(seed) };
        Self { server, policy, state: Mutex::new(state) }
    }

    /// The live connection. If there is none, the first count waits for one to be made, on which others wait with it only
    /// if the connection before it had worked: where Redis is dead, they fail at once.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, RedisFault> {
        let mut connecting = match self.way()? {
            Way::There(connection) => return Ok(connection),
            Way::Coming(connecting) => connecting,
        };
        let connected = connecting.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        connected.unwrap_or(Err(RedisFault::GivenUp))
    }

    fn way(self: &Arc<Self>) -> Result<Way, RedisFault> {
        let mut state = lock(&self.state);
        let before = match &state.phase {
            Phase::Up(connection) => return Ok(Way::There(Arc::clone(connection))),
            // Under way, as long as there is who tells its outcome.
            Phase::Connecting(connecting, fault) if connecting.has_changed().is_ok() => {
                return match fault {
                    Some(fault) if state.failures > 1 => Err(RedisFault::Resting(Box::new(fault.clone()))),
                    _ => Ok(Way::Coming(connecting.clone())),
                };
            }
            Phase::Resting { until, fault } if Instant::now() < *until => {
                return Err(RedisFault::Resting(Box::new(fault.clone())));
            }
            Phase::Resting { fault, .. } => Some(fault.clone()),
            Phase::Idle | Phase::Connecting(..) => None,
        };
        let (outcome, connecting) = watch::channel(None);
        state.phase = Phase::Connecting(connecting.clone(), before);
        let link = Arc::clone(self);
        // A task: it goes on when the count that began it is out of time.
        tokio::spawn(async move {
            let _ = outcome.send(Some(link.connect().await));
        });
        Ok(Way::Coming(connecting))
    }

    async fn connect(&self) -> Result<Arc<Connection>, RedisFault> {
        let within = self.policy.connect_within;
        let too_slow =
            |_| Err(RedisFault::Unreachable(format!("no connection within {} ms", within.as_millis())));
        let connected = timeout(within, self.server.connect()).await.unwrap_or_else(too_slow).map(Arc::new);
        let mut state = lock(&self.state);
        match &connected {
            Ok(connection) => state.phase = Phase::Up(Arc::clone(connection)),
            Err(fault) => state.rest(fault, &self.policy),
        }
        connected
    }

    /// `connection` has counted.
    pub(crate) fn worked(&self) {
        lock(&self.state).failures = 0;
    }

    /// `connection` is not used again; counts that are under way on it may still be answered.
    pub(crate) fn lost(&self, connection: &Arc<Connection>, fault: &RedisFault) {
        let mut state = lock(&self.state);
        // Of all counts that it fails, the first tells.
        if matches!(&state.phase, Phase::Up(current) if Arc::ptr_eq(current, connection)) {
            state.rest(fault, &self.policy);
        }
    }
}

impl State {
    /// After a connection that worked, the next is tried at once. Then pauses grow exponentially with full jitter, so that
    /// nodes do not come back all in the same moment.
    fn rest(&mut self, fault: &RedisFault, policy: &RedisPolicy) {
        let ceiling = match self.failures {
            0 => Duration::ZERO,
            n => policy.pause_first.saturating_mul(2_u32.saturating_pow(n - 1)).min(policy.pause_max),
        };
        self.failures = self.failures.saturating_add(1);
        let until = Instant::now() + ceiling.mul_f64(self.dice.random());
        self.phase = Phase::Resting { until, fault: fault.clone() };
    }
}
