//! The checks of `/readyz`: whether a load balancer should send lookups to this server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::disk::DiskProbe;
use super::node::{Monitored, Running};

/// The check of the accounts.
pub const ACCOUNTS: &str = "accounts";

/// The check of the rate-limit store.
pub const RATE_LIMITS: &str = "rate_limits";

const SHUTDOWN: &str = "shutdown";

/// How long the results of checks are reused, so that clients cannot cause many connections and writes.
const REUSE: Duration = Duration::from_millis(500);

/// The checks of a server, and their last results.
pub struct Health {
    node: Arc<Monitored>,
    /// The disk of the data directory, if there is one.
    disk: Option<DiskProbe>,
    last: Mutex<Option<(Instant, Vec<Check>)>>,
}

/// The result of one check.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    failure: Option<String>,
}

impl Check {
    pub fn name(&self) -> &'static str {
        self.name
    }

    fn new(name: &'static str, result: Result<(), impl ToString>) -> Self {
        Self { name, failure: result.err().map(|error| error.to_string()) }
    }

    pub fn is_ok(&self) -> bool {
        self.failure.is_none()
    }
}

/// The format of Kubernetes: `[+]name ok` or `[-]name failed: reason`.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(f, "[+]{} ok", self.name),
            Some(reason) => write!(f, "[-]{} failed: {reason}", self.name),
        }
    }
}

impl Health {
    pub fn new(node: Arc<Monitored>) -> Self {
        Self { disk: node.data.as_deref().map(DiskProbe::new), node, last: Mutex::default() }
    }

    /// Runs all checks.
    pub async fn checks(&self) -> Vec<Check> {
        let Some(running) = self.node.running() else {
            return vec![Check::new("startup", Err("the stores are being opened"))];
        };
        if running.node.is_draining() {
            // At once: the other checks take seconds if a server does not respond.
            return vec![Check::new(SHUTDOWN, Err("the server is stopping"))];
        }
        let mut checks = self.of_stores(running).await;
        checks.push(Check::new(SHUTDOWN, Ok::<_, String>(())));
        checks
    }

    /// Returns the results of the last checks, or runs them. One caller at a time runs them.
    async fn of_stores(&self, running: &Running) -> Vec<Check> {
        let mut last = self.last.lock().await;
        if let Some((at, checks)) = &*last
            && at.elapsed() < REUSE
        {
            return checks.clone();
        }
        let disk = async {
            match &self.disk {
                Some(disk) => disk.check().await,
                None => Ok(()),
            }
        };
        let (windows, disk) = tokio::join!(running.node.check_windows(), disk);
        let checks = vec![
            Check::new("people", running.node.people.check()),
            Check::new(ACCOUNTS, running.node.check_accounts()),
            Check::new(RATE_LIMITS, windows),
            Check::new("disk", disk),
        ];
        for (i, check) in checks.iter().enumerate() {
            let was_ok = last.as_ref().is_none_or(|(_, checks)| checks[i].is_ok());
            match &check.failure {
                Some(error) if was_ok => {
                    warn!(target: "enrich::admin", check = check.name, error, "a check of /readyz fails")
                }
                None if !was_ok => {
                    info!(target: "enrich::admin", check = check.name, "a check of /readyz succeeds again")
                }
                _ => {}
            }
        }
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}
