//! The nemesis: starts and ends the faults of the plan on schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_fakes::postgres::Postgres;
use enrich_lib::credit::Settlement;
use enrich_lib::model::LookupId;
use turmoil::Sim;

use crate::clock::NodeClock;
use crate::event::{Event, PortCall};
use crate::fault::{DiskFault, Fault, FaultKind};
use crate::machine::Signals;
use crate::plan::Plan;
use crate::stores::Stores;
use crate::topology::{Direction, Link, Peer, Server, node_name};
use crate::trace::Trace;
use crate::vendor::VendorFaults;

/// Message latency on a link after a slow-link fault has ended.
const LATENCY_DEFAULT: Duration = Duration::from_millis(10);

/// How long a node whose process has ended with an error waits until it starts again.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// Starts and ends the faults of a run.
pub(crate) struct Nemesis {
    scheduled: Vec<(Fault, Phase)>,
    clients: usize,
    nodes: Vec<NodeControls>,
    vendor: Arc<VendorFaults>,
    stores: Arc<Stores>,
    trace: Trace,
    /// The number of events that `read_trace` has read.
    seen: usize,
    node_of: BTreeMap<LookupId, usize>,
    /// The spends without a result: their node, and when they began.
    spending: BTreeMap<LookupId, (usize, Duration)>,
    /// When the nodes whose processes have ended with an error start again. `None` if they have only just
    /// ended.
    restarts: BTreeMap<usize, Option<Duration>>,
    /// All nodes stop, and do not start again.
    is_over: bool,
}

/// The parts of a node's machine that fail, and the signals to its process.
pub(crate) struct NodeControls {
    pub(crate) clock: NodeClock,
    pub(crate) signals: Arc<Signals>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Pending,
    Active,
    Ended,
}

impl Nemesis {
    pub(crate) fn new(
        plan: &Plan,
        nodes: Vec<NodeControls>,
        vendor: Arc<VendorFaults>,
        stores: Arc<Stores>,
        trace: Trace,
    ) -> Self {
        let scheduled = plan.faults.iter().map(|fault| (fault.clone(), Phase::Pending)).collect();
        Self {
            scheduled,
            clients: plan.clients.len(),
            nodes,
            vendor,
            stores,
            trace,
            seen: 0,
            node_of: BTreeMap::new(),
            spending: BTreeMap::new(),
            restarts: BTreeMap::new(),
            is_over: false,
        }
    }

    /// Starts and ends the faults that are due.
    ///
    /// If two faults overlap on the same node or server, both end when the first one ends.
    pub(crate) fn act(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        self.read_trace(now);
        self.crash_without_power(sim);
        let mut has_repaired = self.restart(sim, now);
        for i in 0..self.scheduled.len() {
            let (Fault { start, duration, kind }, phase) = self.scheduled[i].clone();
            if phase == Phase::Pending && start <= now && self.can_start(&self.scheduled[i].0, now) {
                self.trace.record_at(now, Event::FaultStarted(kind.clone()));
                self.start(sim, &kind);
                // From now on, a crash that has waited for a spend lasts for its duration.
                self.scheduled[i] = (Fault { start: now, duration, kind }, Phase::Active);
            } else if phase == Phase::Pending && start + duration <= now {
                self.scheduled[i].1 = Phase::Ended;
            } else if phase == Phase::Active && start + duration <= now && self.can_stop(sim, &kind) {
                self.trace.record_at(now, Event::FaultEnded(kind.clone()));
                self.stop(sim, &kind);
                self.scheduled[i].1 = Phase::Ended;
                has_repaired = true;
            }
        }
        // A fault that ends may repair links that another one still cuts.
        let is_cut = |(fault, phase): &&(Fault, Phase)| *phase == Phase::Active && fault.kind.cuts_link();
        for (fault, _) in self.scheduled.iter().filter(is_cut).filter(|_| has_repaired) {
            self.start(sim, &fault.kind);
        }
    }

    /// Signals all nodes to stop.
    pub(crate) fn stop_nodes(&mut self) {
        self.is_over = true;
        self.nodes.iter().for_each(|node| node.signals.stop.notify_one());
    }

    /// Ends the faults that last until all clients have finished.
    pub(crate) fn heal(&mut self) {
        for (fault, phase) in &mut self.scheduled {
            match phase {
                _ if fault.duration != Fault::LASTING => {}
                Phase::Pending => *phase = Phase::Ended,
                Phase::Active | Phase::Ended => fault.duration = Duration::ZERO,
            }
        }
    }

    /// Returns whether all faults are over, except those that end with [`Nemesis::heal`].
    pub(crate) fn is_done(&self) -> bool {
        let is_over =
            |(fault, phase): &(Fault, Phase)| *phase == Phase::Ended || fault.duration == Fault::LASTING;
        self.scheduled.iter().all(is_over) && self.restarts.is_empty()
    }

    /// Finds the spends that have begun or ended since the last step, and the nodes that have failed.
    fn read_trace(&mut self, now: Duration) {
        let Self { trace, seen, node_of, spending, restarts, .. } = self;
        trace.with(|entries| {
            for entry in &entries[*seen..] {
                match &entry.event {
                    Event::LookupStarted(node, lookup) => drop(node_of.insert(*lookup, *node)),
                    Event::PortCalled(lookup, PortCall::Settle(Settlement::Spend(_))) => {
                        spending.extend(node_of.get(lookup).map(|node| (*lookup, (*node, now))));
                    }
                    Event::PortReturned(lookup, _) => drop(spending.remove(lookup)),
                    Event::NodeCrashed(node) => spending.retain(|_, (of, _)| of != node),
                    Event::NodeFailed(node, _) => drop(restarts.insert(*node, None)),
                    _ => {}
                }
            }
            *seen = entries.len();
        });
    }

    /// Crashes the node whose disk has lost power.
    fn crash_without_power(&self, sim: &mut Sim<'_>) {
        if self.stores.disk().is_some_and(|disk| !disk.is_on()) && sim.is_host_running(node_name(0)) {
            self.trace.record_at(sim.elapsed(), Event::PowerCut(0));
            self.crash(sim, 0);
        }
    }

    /// Ends the processes that have failed, and starts those again that have ended before. Returns whether it has
    /// started one.
    fn restart(&mut self, sim: &mut Sim<'_>, now: Duration) -> bool {
        let mut has_started = false;
        for (node, at) in std::mem::take(&mut self.restarts) {
            match at {
                None => {
                    self.crash(sim, node);
                    self.restarts.insert(node, Some(now + RESTART_DELAY));
                }
                _ if self.is_over || self.stores.disk().is_some_and(|disk| !disk.is_on()) => {}
                Some(at) if at <= now => {
                    self.recover(sim, node);
                    has_started = true;
                }
                Some(_) => drop(self.restarts.insert(node, at)),
            }
        }
        has_started
    }

    /// Returns whether the fault can start now: a crash during a spend happens up to 60 ms after its begin,
    /// by the seed, if it still has no result then.
    fn can_start(&self, Fault { start, duration, kind }: &Fault, now: Duration) -> bool {
        match kind {
            FaultKind::CrashDuringSpend(node) => {
                let delay = Duration::from_millis(u64::from(duration.subsec_millis()) % 60);
                self.spending.values().any(|(of, at)| of == node && at >= start && *at + delay <= now)
            }
            FaultKind::FailedCommit { .. } | FaultKind::LateStatements(_) => !self.spending.is_empty(),
            _ => true,
        }
    }

    /// Returns whether the stores may fail or lose a change that an operator makes now.
    pub(crate) fn can_lose_changes(&self) -> bool {
        self.scheduled.iter().any(|(fault, phase)| {
            let fails = match fault.kind {
                FaultKind::Disk(_, fault) => fault != DiskFault::Stall,
                FaultKind::StandbyAway | FaultKind::Promotion => true,
                _ => false,
            };
            fails && *phase == Phase::Active
        })
    }

    /// Returns whether the fault can end now: a node starts again only when it has stopped.
    fn can_stop(&self, sim: &mut Sim<'_>, kind: &FaultKind) -> bool {
        let FaultKind::Shutdown(node) = *kind else { return true };
        let is_running = sim.is_host_running(node_name(node));
        if is_running {
            // Another fault may have started it again.
            self.nodes[node].signals.stop.notify_one();
        }
        !is_running
    }

    fn start(&self, sim: &mut Sim<'_>, kind: &FaultKind) {
        match *kind {
            FaultKind::Partition(link) => sim.partition(peer(link), node(link)),
            FaultKind::OneWayPartition(link, Direction::ToNode) => {
                sim.partition_oneway(peer(link), node(link))
            }
            FaultKind::OneWayPartition(link, Direction::FromNode) => {
                sim.partition_oneway(node(link), peer(link))
            }
            FaultKind::Buffering(link) => sim.hold(peer(link), node(link)),
            FaultKind::Latency(link, latency) => sim.set_link_latency(peer(link), node(link), latency),
            FaultKind::MessageLoss(link, rate) => sim.set_link_fail_rate(peer(link), node(link), rate),
            FaultKind::NodeCrash(node) | FaultKind::CrashDuringSpend(node) => self.crash(sim, node),
            FaultKind::Shutdown(node) => self.nodes[node].signals.stop.notify_one(),
            FaultKind::Reload(node) => self.nodes[node].signals.reload(true),
            FaultKind::Disk(_, fault) => {
                self.stores.disk().into_iter().for_each(|disk| disk.start(fault));
            }
            FaultKind::Vendor(fault, rate) => self.vendor.set(Some((fault, rate))),
            FaultKind::ServerCrash(server) => {
                self.server_links(server).for_each(|link| sim.partition(peer(link), node(link)));
                if sim.is_host_running(server.name()) {
                    sim.crash(server.name());
                    self.stores.drop_volatile_data(server, sim.elapsed());
                }
            }
            FaultKind::LockedWorkspace => self.stores.lock_workspace(),
            FaultKind::WrongClock(node, ahead_ms) => self.set_clock(sim, node, ahead_ms),
            _ => self.stores.postgres().into_iter().for_each(|postgres| start_in_postgres(postgres, kind)),
        }
    }

    fn stop(&self, sim: &mut Sim<'_>, kind: &FaultKind) {
        match *kind {
            FaultKind::Partition(link) | FaultKind::OneWayPartition(link, _) | FaultKind::Buffering(link) => {
                repair(sim, link)
            }
            FaultKind::Latency(link, _) => sim.set_link_latency(peer(link), node(link), LATENCY_DEFAULT),
            FaultKind::MessageLoss(link, _) => sim.set_link_fail_rate(peer(link), node(link), 0.0),
            FaultKind::NodeCrash(node) | FaultKind::CrashDuringSpend(node) | FaultKind::Shutdown(node) => {
                self.recover(sim, node)
            }
            FaultKind::Reload(node) => self.nodes[node].signals.reload(false),
            FaultKind::Disk(node, fault) => {
                let Some(disk) = self.stores.disk() else { return };
                let was_off = !disk.is_on();
                disk.stop(fault);
                if was_off && disk.is_on() {
                    self.recover(sim, node);
                }
            }
            FaultKind::Vendor(..) => self.vendor.set(None),
            FaultKind::ServerCrash(server) => {
                if !sim.is_host_running(server.name()) {
                    sim.bounce(server.name());
                }
                self.server_links(server).for_each(|link| repair(sim, link));
            }
            FaultKind::LockedWorkspace => self.stores.unlock_workspace(),
            FaultKind::Promotion => self.stores.promote_standby(sim.elapsed()),
            FaultKind::WrongClock(node, _) => self.set_clock(sim, node, 0),
            _ => self.stores.postgres().into_iter().for_each(|postgres| end_in_postgres(postgres, kind)),
        }
    }

    fn crash(&self, sim: &mut Sim<'_>, node: usize) {
        if sim.is_host_running(node_name(node)) {
            self.trace.record_at(sim.elapsed(), Event::NodeCrashed(node));
        }
        self.kill(sim, node);
    }

    /// Ends the process of a node, whose clients observe silence.
    fn kill(&self, sim: &mut Sim<'_>, node: usize) {
        // Cuts the links before the crash. Otherwise the last messages of the node's connections would depend
        // on the order in which tokio drops its tasks, which differs between runs.
        self.node_links(node).for_each(|link| sim.partition(peer(link), node_name(node)));
        // A process that crashes logs nothing. Here its tasks are dropped, in an order that differs between
        // runs.
        let recorded = self.trace.with(|entries| entries.len());
        match self.stores.disk() {
            Some(disk) => disk.keep_during(|| sim.crash(node_name(node))),
            None => sim.crash(node_name(node)),
        }
        self.trace.with(|entries| entries.truncate(recorded));
    }

    fn set_clock(&self, sim: &Sim<'_>, node: usize, ahead_ms: i64) {
        self.nodes[node].clock.set_ahead(ahead_ms);
        self.trace.record_at(sim.elapsed(), Event::ClockSet(node));
    }

    /// Starts a node that has crashed or stopped, if its machine has power, and repairs its links.
    fn recover(&self, sim: &mut Sim<'_>, node: usize) {
        let has_power = self.stores.disk().is_none_or(|disk| disk.is_on());
        if has_power && !sim.is_host_running(node_name(node)) {
            sim.bounce(node_name(node));
        }
        self.node_links(node).for_each(|link| repair(sim, link));
    }

    fn node_links(&self, node: usize) -> impl Iterator<Item = Link> {
        let servers = self.stores.servers().iter().map(|server| Peer::Server(*server));
        let peers = (0..self.clients).map(Peer::Client).chain([Peer::Vendor]).chain(servers);
        peers.map(move |peer| Link { peer, node })
    }

    fn server_links(&self, server: Server) -> impl Iterator<Item = Link> {
        (0..self.nodes.len()).map(move |node| Link { peer: Peer::Server(server), node })
    }
}

/// Starts a fault that the fake server has itself.
fn start_in_postgres(postgres: &Postgres, kind: &FaultKind) {
    match *kind {
        FaultKind::Standby => postgres.fail_over(),
        FaultKind::FailedCommit { severity, is_replayed } => postgres.fail_next_commit(severity, is_replayed),
        FaultKind::StandbyAway => postgres.detach_standby(),
        FaultKind::TerminatedSessions => postgres.terminate(),
        FaultKind::CanceledStatements => postgres.cancel_all(),
        FaultKind::Promotion => postgres.stop(),
        FaultKind::ReadOnly => postgres.set_read_only(true),
        FaultKind::LockedTable(table) => postgres.lock_table(Some(table)),
        FaultKind::NoConnections => postgres.set_full(true),
        FaultKind::LateStatements(delay) => postgres.delay_open_sessions(Some(delay)),
        _ => {}
    }
}

fn end_in_postgres(postgres: &Postgres, kind: &FaultKind) {
    match kind {
        FaultKind::Standby => postgres.promote(),
        FaultKind::FailedCommit { .. } => postgres.start(),
        FaultKind::StandbyAway => postgres.attach_standby(),
        FaultKind::ReadOnly => postgres.set_read_only(false),
        FaultKind::LockedTable(_) => postgres.lock_table(None),
        FaultKind::NoConnections => postgres.set_full(false),
        FaultKind::LateStatements(_) => postgres.delay_open_sessions(None),
        _ => {}
    }
}

fn repair(sim: &Sim<'_>, link: Link) {
    sim.repair(peer(link), node(link));
    sim.release(peer(link), node(link));
}

fn peer(link: Link) -> String {
    link.peer.name()
}

fn node(link: Link) -> String {
    node_name(link.node)
}
