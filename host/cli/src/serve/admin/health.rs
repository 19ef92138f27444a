//! The checks of `/readyz`: whether a load balancer should send lookups to this server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use enrich_store::ClockSkew;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::disk::DiskProbe;
use super::node::{Node, NodeStores};
use crate::serve::ticks::Ticks;

/// How long the results of checks are reused, so that clients cannot cause many connections and writes.
const REUSE: Duration = Duration::from_millis(500);

/// The checks of a server, and their last results.
pub struct Health {
    node: Arc<Node>,
    disk: DiskProbe,
    last: Mutex<Option<(Instant, Vec<Check>)>>,
}

/// The result of one check.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    failure: Option<String>,
}

impl Check {
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
    pub fn new(node: Arc<Node>) -> Self {
        Self { disk: DiskProbe::new(&node.data), node, last: Mutex::default() }
    }

    /// Runs all checks.
    pub async fn checks(&self) -> Vec<Check> {
        let Some(stores) = self.node.stores() else {
            return vec![Check::new("startup", Err("the people are being loaded and the stores opened"))];
        };
        let shutdown = if self.node.is_draining() { Err("the server is stopping") } else { Ok(()) };
        let mut checks = self.of_stores(stores).await;
        checks.push(Check::new("shutdown", shutdown));
        checks
    }

    /// Returns the results of the last checks, or runs them. One caller at a time runs them.
    async fn of_stores(&self, stores: &NodeStores) -> Vec<Check> {
        let mut last = self.last.lock().await;
        if let Some((at, checks)) = &*last
            && at.elapsed() < REUSE
        {
            return checks.clone();
        }
        let (windows, disk) = tokio::join!(stores.windows.check(), self.disk.check());
        let checks = vec![
            // Opened before the server starts, and used by each lookup.
            Check::new("people", Ok::<_, String>(())),
            Check::new("accounts", accounts(stores)),
            Check::new("rate_limits", windows),
            Check::new("disk", disk),
            Check::new("clock", clock(stores)),
        ];
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

fn accounts(stores: &NodeStores) -> Result<(), String> {
    stores.accounts.check().map_err(|error| format!("{error:#}"))?;
    match stores.ticks.age() {
        age if age > Ticks::AGE_MAX => Err(format!("not refreshed for {} s", age.as_secs())),
        _ => Ok(()),
    }
}

fn clock(stores: &NodeStores) -> Result<(), String> {
    let skews = [("PostgreSQL", stores.accounts.clock_skew()), ("Redis", stores.windows.clock_skew())];
    match skews.into_iter().find_map(|(server, skew)| Some((server, skew.filter(is_large)?))) {
        Some((server, skew)) => Err(format!("the clock of this machine is {skew} of the clock of {server}")),
        None => Ok(()),
    }
}

fn is_large(skew: &ClockSkew) -> bool {
    skew.size() >= ClockSkew::ERROR_MAX
}
