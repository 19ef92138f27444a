//! The open connections of a server, on all its threads.
//!
//! At the limit, a new connection replaces one without a lookup in flight. Otherwise, clients could exclude all
//! others by opening connections.
//!
//! A sweep every 100 ms looks for connections whose wait is over. At 10,000 connections it takes 1 ms.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::activity::{Activity, Clock, Evicted};
use crate::client_address::client_network;
use crate::limits::Limits;
use crate::shutdown::{Phase, Shutdown};

/// Maximum number of connections that are evicted but not closed yet. They exceed
/// [`Limits::connections_max`].
const EVICTED_MAX: usize = 4;

/// Interval of checks for a connection that can be closed while all have a lookup in flight.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Time for the requests on the connections that were accepted last.
const LAST_REQUESTS_TIMEOUT: Duration = Duration::from_millis(250);

/// Minimum interval between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Registry {
    limits: Limits,
    shutdown: Arc<Shutdown>,
    clock: Clock,
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

/// Reads the connections of the server that it is passed to. Clones read the same server.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMonitor(Arc<OnceLock<Arc<Registry>>>);

impl ConnectionMonitor {
    /// Sets the server. The first call counts.
    pub(crate) fn watch(&self, registry: &Arc<Registry>) {
        self.0.get_or_init(|| registry.clone());
    }

    /// Returns the connections, or none before the server runs.
    pub fn statistics(&self) -> ConnectionStatistics {
        self.0.get().map(|registry| registry.statistics()).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Number of connections so far, and the id of the next one.
    admitted: u64,
    /// The open connections that were not authenticated at the last sweep, the oldest one first.
    unauthenticated: BTreeMap<u64, Arc<Activity>>,
    /// The other open connections.
    authenticated: BTreeMap<u64, Arc<Activity>>,
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
    pub(crate) activity: Arc<Activity>,
    /// Held until the connection is closed. Its reference count is the number of connections of a thread.
    pub(crate) on_thread: Option<Arc<()>>,
}

enum Admission {
    Admitted(Slot),
    /// The address has too many connections.
    Refused,
    /// All connections have a lookup in flight.
    Full,
}

impl Registry {
    pub(crate) fn new(limits: &Limits, shutdown: Arc<Shutdown>) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            shutdown,
            clock: Clock::default(),
            state: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// Awaits `serving`, and sweeps the connections meanwhile.
    pub(crate) async fn sweep_during<T>(&self, serving: impl Future<Output = T>) -> T {
        tokio::select! { biased;
            served = serving => served,
            never = self.sweep_repeatedly() => match never {},
        }
    }

    async fn sweep_repeatedly(&self) -> Infallible {
        let mut last = Instant::now();
        loop {
            sleep_until(last + Clock::STEP).await;
            let now = Instant::now();
            self.clock.advance(now - last);
            last = now;
            self.sweep();
        }
    }

    /// Wakes each connection whose wait is over.
    pub(crate) fn sweep(&self) {
        let (phase, mut state) = (self.shutdown.phase(), self.lock());
        state.move_authenticated();
        state.connections().for_each(|activity| activity.sweep(&self.limits, phase));
    }

    pub(crate) fn statistics(&self) -> ConnectionStatistics {
        let state = self.lock();
        let active = state.connections().filter(|activity| activity.has_requests()).count();
        ConnectionStatistics {
            active: active as u64,
            idle: (state.open() - active) as u64,
            accepted: state.admitted,
            evicted: state.evictions,
            refused: state.refusals,
        }
    }

    /// Waits for `signal`, then begins all phases of the shutdown.
    ///
    /// A client may send a request just before an idle connection is closed, so it must first be able to
    /// receive a reply that announces the close. If another process accepts the connections of a shared
    /// socket, this one stops at once.
    pub(crate) async fn shut_down_after(&self, signal: impl Future<Output = ()>, is_socket_shared: bool) {
        signal.await;
        self.begin(Phase::Draining);
        let rest = if is_socket_shared {
            self.limits.drain_timeout
        } else {
            sleep(self.limits.drain_timeout).await;
            LAST_REQUESTS_TIMEOUT
        };
        self.shutdown.stopping.cancel();
        let _ = timeout(rest, self.emptied()).await;
        self.begin(Phase::Closing);
        self.shutdown.closing.cancel();
    }

    fn begin(&self, phase: Phase) {
        self.shutdown.begin(phase);
        self.sweep();
    }

    /// Waits until no connection is open.
    async fn emptied(&self) {
        /// Longer than the listener needs to empty its queue.
        const INTERVAL: Duration = Duration::from_millis(50);

        loop {
            sleep(INTERVAL).await;
            if self.lock().open() == 0 {
                return;
            }
        }
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
        if count >= self.limits.connections_per_address_max && !address.is_loopback() {
            state.unreported.1 += 1;
            state.refusals += 1;
            state.warn(&self.limits);
            return Admission::Refused;
        }
        while state.open() - state.evicted >= self.limits.connections_max {
            if state.evicted >= EVICTED_MAX || !state.evict() {
                state.warn(&self.limits);
                return Admission::Full;
            }
            state.unreported.0 += 1;
            state.evictions += 1;
            state.warn(&self.limits);
        }
        let (id, activity) = (state.admitted, Arc::new(Activity::new(peer, self.clock.clone())));
        state.admitted += 1;
        *state.addresses.entry(address).or_default() += 1;
        state.unauthenticated.insert(id, activity.clone());
        Admission::Admitted(Slot { registry: self.clone(), id, address, activity, on_thread: None })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn connections(&self) -> impl Iterator<Item = &Arc<Activity>> {
        self.unauthenticated.values().chain(self.authenticated.values())
    }

    fn open(&self) -> usize {
        self.unauthenticated.len() + self.authenticated.len()
    }

    /// Closes the oldest unauthenticated connection or, if there is none, the one that is idle for the longest time,
    /// or else the one whose requests take the longest time. Returns `false` if all connections have a lookup in flight.
    fn evict(&mut self) -> bool {
        // In a flood of connections without a key, one of the first ones can be evicted.
        let is_unauthenticated = |activity: &&Arc<Activity>| !activity.is_authenticated();
        let mut unauthenticated = self.unauthenticated.values().filter(is_unauthenticated);
        let is_evicted = unauthenticated.any(|activity| activity.evict(Evicted::Idle)) || {
            self.move_authenticated();
            self.evict_authenticated(Evicted::Idle) || self.evict_authenticated(Evicted::WithoutLookup)
        };
        self.evicted += usize::from(is_evicted);
        is_evicted
    }

    fn evict_authenticated(&self, evicted: Evicted) -> bool {
        let connections = self.authenticated.values();
        let evictable =
            connections.filter_map(|activity| Some((activity.evictable_since(evicted)?, activity)));
        evictable.min_by_key(|(since, _)| *since).is_some_and(|(_, activity)| activity.evict(evicted))
    }

    fn move_authenticated(&mut self) {
        self.unauthenticated.retain(|id, activity| {
            let is_authenticated = activity.is_authenticated();
            if is_authenticated {
                self.authenticated.insert(*id, activity.clone());
            }
            !is_authenticated
        });
    }

    /// Logs that a limit is reached, with the connections that were closed, at most once in [`WARNING_INTERVAL`].
    fn warn(&mut self, limits: &Limits) {
        let now = Instant::now();
        if self.warned_at.is_some_and(|at| now < at + WARNING_INTERVAL) {
            return;
        }
        let (closed, refused) = std::mem::take(&mut self.unreported);
        self.warned_at = Some(now);
        tracing::warn!(
            closed,
            refused,
            connections = self.open(),
            connections_max = limits.connections_max,
            per_address_max = limits.connections_per_address_max,
            "too many connections; closing those without a lookup, refusing those of an address above its limit, and delaying \
             others"
        );
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        if state.unauthenticated.remove(&self.id).is_none() {
            state.authenticated.remove(&self.id);
        }
        if self.activity.is_evicted() {
            state.evicted -= 1;
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
