//! The open connections of a server, on all its threads.
//!
//! At the limit, a new connection replaces an idle one. Otherwise, clients without a key could exclude all
//! others by opening connections.
//!
//! The registry is updated only when a connection is opened or closed. Its order of eviction may therefore be
//! out of date: a connection's position is at or before its current one, and is corrected when the connection
//! is considered for eviction.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::activity::ConnectionActivity;
use crate::client_address::client_network;
use crate::limits::Limits;

/// Maximum number of connections that are evicted but not closed yet. They exceed
/// [`Limits::connections_max`].
const EVICTED_MAX: usize = 4;

/// Interval of checks for an idle connection while all connections have a request in flight.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum interval between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Registry {
    connections_max: usize,
    per_address_max: usize,
    state: Mutex<State>,
    /// Notified when a connection closes.
    closed: Notify,
}

/// The connections of a server at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStatistics {
    /// Open connections with a request in flight.
    pub active: u64,
    /// Other open connections.
    pub idle: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections that were replaced by a new one at the limit.
    pub evicted: u64,
    /// Connections that were refused because their address had too many.
    pub refused: u64,
}

/// The position of a connection in the order of eviction: whether it is authenticated, the start of its idle
/// time, its id.
type Position = (bool, Instant, u64);

#[derive(Debug, Default)]
struct State {
    /// Number of connections so far, and the id of the next one.
    admitted: u64,
    /// All open connections except evicted ones, in the order of eviction.
    queue: BTreeMap<Position, Arc<ConnectionActivity>>,
    positions: BTreeMap<u64, Position>,
    /// Number of evicted connections that are still open.
    evicted: usize,
    addresses: BTreeMap<IpAddr, usize>,
    /// Connections that were evicted or refused since the last warning.
    unreported: (u64, u64),
    /// Connections that were evicted or refused so far.
    evictions: u64,
    refusals: u64,
    warned_at: Option<Instant>,
}

/// The place of an open connection in the registry, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    registry: Arc<Registry>,
    id: u64,
    address: IpAddr,
    pub(crate) activity: Arc<ConnectionActivity>,
    /// Held until the connection is closed. Its reference count is the number of connections of a thread.
    pub(crate) on_thread: Option<Arc<()>>,
}

enum Admission {
    Admitted(Slot),
    /// The address has too many connections.
    Refused,
    /// All connections have a request in flight.
    Full,
}

impl Registry {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            connections_max: limits.connections_max,
            per_address_max: limits.connections_per_address_max,
            state: Mutex::default(),
            closed: Notify::new(),
        })
    }

    pub(crate) fn statistics(&self) -> ConnectionStatistics {
        let state = self.lock();
        let active = state.queue.values().filter(|activity| activity.has_requests()).count();
        ConnectionStatistics {
            active: active as u64,
            idle: (state.queue.len() - active + state.evicted) as u64,
            accepted: state.admitted,
            evicted: state.evictions,
            refused: state.refusals,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && state.evicted == 0
    }

    /// Waits for a slot. Returns `None` if the address has too many connections. Cancel safe.
    pub(crate) async fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        loop {
            match self.try_admit(address) {
                Admission::Admitted(slot) => return Some(slot),
                Admission::Refused => return None,
                Admission::Full => drop(timeout(RETRY_INTERVAL, self.closed.notified()).await),
            }
        }
    }

    fn try_admit(self: &Arc<Self>, peer: IpAddr) -> Admission {
        let address = client_network(peer);
        let mut state = self.lock();
        let state = &mut *state;
        let count = state.addresses.get(&address).copied().unwrap_or(0);
        if count >= self.per_address_max && !address.is_loopback() {
            state.unreported.1 += 1;
            state.refusals += 1;
            state.warn(self);
            return Admission::Refused;
        }
        while state.queue.len() >= self.connections_max {
            if state.evicted >= EVICTED_MAX || !state.evict() {
                return Admission::Full;
            }
            state.unreported.0 += 1;
            state.evictions += 1;
            state.warn(self);
        }
        let (id, activity) = (state.admitted, Arc::new(ConnectionActivity::new(peer)));
        state.admitted += 1;
        *state.addresses.entry(address).or_default() += 1;
        state.insert(id, activity.clone());
        Admission::Admitted(Slot { registry: self.clone(), id, address, activity, on_thread: None })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, id: u64, activity: Arc<ConnectionActivity>) {
        let (is_authenticated, since) = activity.eviction_order();
        self.insert_at((is_authenticated, since, id), activity);
    }

    fn insert_at(&mut self, position: Position, activity: Arc<ConnectionActivity>) {
        self.positions.insert(position.2, position);
        self.queue.insert(position, activity);
    }

    /// Closes the first connection in the order of eviction. Returns `false` if all connections have a
    /// request in flight.
    fn evict(&mut self) -> bool {
        let now = Instant::now();
        // Each position is corrected at most once before its connection is considered.
        for _ in 0..2 * self.queue.len() {
            let Some((position, activity)) = self.queue.pop_first() else { break };
            let (is_authenticated, since) = activity.eviction_order();
            let id = position.2;
            if !activity.can_evict() {
                self.insert_at((is_authenticated, now, id), activity);
            } else if (is_authenticated, since, id) > position {
                self.insert_at((is_authenticated, since, id), activity);
            } else {
                self.positions.remove(&id);
                self.evicted += 1;
                activity.evicted.notify_one();
                return true;
            }
        }
        false
    }

    /// Logs the connections that were closed because of a limit, at most once in [`WARNING_INTERVAL`].
    fn warn(&mut self, Registry { connections_max, per_address_max, .. }: &Registry) {
        let now = Instant::now();
        if self.warned_at.is_some_and(|at| now < at + WARNING_INTERVAL) {
            return;
        }
        let (closed, refused) = std::mem::take(&mut self.unreported);
        self.warned_at = Some(now);
        tracing::warn!(
            closed,
            refused,
            connections = self.queue.len(),
            connections_max,
            per_address_max,
            "too many connections; closing idle ones and refusing those of an address above its limit"
        );
    }
}

impl Slot {
    /// Waits until the connection is evicted. A request that has just arrived prevents it.
    pub(crate) async fn evicted(&self) {
        loop {
            self.activity.evicted.notified().await;
            if self.activity.can_evict() {
                return;
            }
            let mut state = self.registry.lock();
            state.evicted -= 1;
            state.insert(self.id, self.activity.clone());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        match state.positions.remove(&self.id) {
            Some(position) => drop(state.queue.remove(&position)),
            None => state.evicted -= 1,
        }
        if let Some(count) = state.addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                state.addresses.remove(&self.address);
            }
        }
        drop(state);
        self.registry.closed.notify_one();
    }
}
