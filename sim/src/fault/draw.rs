//! The faults of a world, drawn from its seed.

use enrich_fakes::postgres::{Postgres, Severity};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::{DiskFault, Fault, FaultKind, VendorFault};
use crate::clock::random_ms;
use crate::topology::{Direction, Link, Peer, Server, StoreKind};

const HOUR_MS: i64 = 3_600_000;

impl Fault {
    /// Draws a fault that may recur, with times between in which it is over. `pace` lengthens these times.
    pub(crate) fn draw_recurring(
        rng: &mut StdRng,
        stores: StoreKind,
        clients: usize,
        pace: u32,
    ) -> Vec<Self> {
        let first = Self::draw(rng, stores, clients);
        let times = *[1, 1, 1, 2, 4].choose(rng).expect("not empty");
        let mut start = first.start * pace;
        let recurrences = (0..times).map(|_| {
            let duration = first.duration.mul_f64(rng.random_range(0.2..=1.0));
            let fault = Self { start, duration, kind: first.kind.clone() };
            start += duration + random_ms(rng, 300..6_000) * pace;
            fault
        });
        recurrences.collect()
    }

    fn draw(rng: &mut StdRng, stores: StoreKind, clients: usize) -> Self {
        if let StoreKind::Servers(nodes) = stores {
            return Self::draw_for_servers(rng, nodes, clients);
        }
        let node = rng.random_range(0..stores.nodes());
        let is_vendor = rng.random_bool(0.2);
        let peer = if is_vendor { Peer::Vendor } else { Peer::Client(rng.random_range(0..clients)) };
        let link = Link { peer, node };
        let kind = match rng.random_range(0..22) {
            0 => FaultKind::Partition(link),
            1 => FaultKind::Buffering(link),
            2 => FaultKind::Latency(link, random_ms(rng, 200..2_000)),
            3 => FaultKind::MessageLoss(link, rng.random_range(0.05..0.5)),
            4 => FaultKind::NodeCrash(node),
            5 | 17 => FaultKind::CrashDuringSpend(node),
            6 | 7 => FaultKind::OneWayPartition(link, Direction::draw(rng)),
            8..11 => FaultKind::draw_vendor(rng),
            11 | 14 => FaultKind::Reload(node),
            12 | 13 => FaultKind::Shutdown(node),
            15 | 16 => FaultKind::WrongClock(node, rng.random_range(-HOUR_MS..=HOUR_MS)),
            _ => FaultKind::Disk(node, DiskFault::draw(rng)),
        };
        // Stalls may last long enough for the host to give up on a settlement.
        let ms_max = if matches!(kind, FaultKind::Disk(_, DiskFault::Stall)) { 9_000 } else { 5_000 };
        Self { start: random_ms(rng, 0..6_000), duration: random_ms(rng, 100..ms_max), kind }
    }

    /// Draws a fault that lasts until all clients have finished. Some lookups do not depend on what it affects: those
    /// of other nodes, of another workspace, or without a vendor.
    pub(crate) fn draw_lasting(rng: &mut StdRng, stores: StoreKind) -> Self {
        let node = rng.random_range(0..stores.nodes());
        let peers = [Peer::Server(Server::Redis), Peer::Server(Server::Postgres), Peer::Vendor];
        let (peers, count) = if stores == StoreKind::Sqlite { (&peers[2..], 5) } else { (&peers[..], 11) };
        let link = Link { peer: *peers.choose(rng).expect("not empty"), node };
        let kind = match rng.random_range(0..count) {
            0 => FaultKind::Partition(link),
            1 => FaultKind::OneWayPartition(link, Direction::draw(rng)),
            2 => FaultKind::Latency(link, random_ms(rng, 30..2_000)),
            3 => FaultKind::MessageLoss(link, rng.random_range(0.05..0.5)),
            4 => FaultKind::draw_vendor(rng),
            5 => FaultKind::NodeCrash(node),
            6 => FaultKind::WrongClock(node, rng.random_range(1_000..120_000)),
            7 | 8 => FaultKind::LockedTable(Postgres::USAGE),
            _ => FaultKind::LockedWorkspace,
        };
        Self { start: random_ms(rng, 0..2_000), duration: Self::LASTING, kind }
    }

    /// Draws a fault that keeps the spends of a crowd waiting, so that many of them are committed together.
    pub(crate) fn draw_for_crowd(rng: &mut StdRng, stores: StoreKind, node: usize) -> Self {
        let kind = match stores {
            StoreKind::Sqlite => FaultKind::Disk(node, DiskFault::Stall),
            StoreKind::Servers(_) => {
                FaultKind::Buffering(Link { peer: Peer::Server(Server::Postgres), node })
            }
        };
        Self { start: random_ms(rng, 1_000..1_400), duration: random_ms(rng, 300..1_500), kind }
    }

    /// Draws what an operator does while the standby is away: ends the commits that wait for it, and
    /// promotes it.
    pub(crate) fn draw_while_away(&self, rng: &mut StdRng) -> Vec<Self> {
        let mut faults = Vec::new();
        let mut during = |kind, begin: f64, end: f64| {
            let at = |part| self.duration.mul_f64(part);
            faults.push(Self { start: self.start + at(begin), duration: at(end - begin), kind });
        };
        if matches!(self.kind, FaultKind::StandbyAway) {
            let terminated_at = rng.random_range(0.1..0.5);
            if rng.random_bool(0.8) {
                during(Self::draw_interruption(rng), terminated_at, 0.6);
            }
            if rng.random_bool(0.5) {
                during(FaultKind::Promotion, rng.random_range(0.6..0.8), 0.9);
            }
        }
        faults
    }

    /// Draws a fault that makes the commits visible which wait for the standby.
    fn draw_interruption(rng: &mut StdRng) -> FaultKind {
        if rng.random_bool(0.5) { FaultKind::TerminatedSessions } else { FaultKind::CanceledStatements }
    }

    /// Draws a fault for stores on servers. Only the network and the machines fail; no faults are injected
    /// into the store ports.
    fn draw_for_servers(rng: &mut StdRng, nodes: usize, clients: usize) -> Self {
        let node = rng.random_range(0..nodes);
        let server = if rng.random_bool(0.3) { Server::Redis } else { Server::Postgres };
        let peer = match rng.random_range(0..10) {
            0 => Peer::Vendor,
            1 | 2 => Peer::Client(rng.random_range(0..clients)),
            _ => Peer::Server(server),
        };
        let link = Link { peer, node };
        let kind = match rng.random_range(0..42) {
            0 | 1 => FaultKind::Partition(link),
            2 | 3 => FaultKind::Buffering(link),
            4 => FaultKind::Latency(link, random_ms(rng, 30..1_200)),
            5 | 6 => FaultKind::MessageLoss(link, rng.random_range(0.05..0.5)),
            7 => FaultKind::NodeCrash(node),
            8 | 9 | 40 | 41 => FaultKind::CrashDuringSpend(node),
            10 | 11 => FaultKind::OneWayPartition(link, Direction::draw(rng)),
            12 | 13 => FaultKind::ServerCrash(server),
            15 | 16 => FaultKind::WrongClock(node, rng.random_range(1_000..120_000)),
            17 | 18 => FaultKind::Standby,
            19 | 20 => FaultKind::LockedWorkspace,
            21 | 22 => FaultKind::Shutdown(node),
            14 | 23 => FaultKind::Reload(node),
            24 | 25 => FaultKind::FailedCommit {
                severity: *[Severity::Fatal, Severity::Panic].choose(rng).expect("not empty"),
                is_replayed: rng.random_bool(0.7),
            },
            26..29 => FaultKind::StandbyAway,
            29 => Self::draw_interruption(rng),
            30 => FaultKind::Promotion,
            31 => FaultKind::ReadOnly,
            32 | 33 => FaultKind::LateStatements(random_ms(rng, 500..5_000)),
            34 | 35 => FaultKind::LockedTable(Postgres::TABLES.choose(rng).expect("not empty")),
            36 | 37 => FaultKind::NoConnections,
            _ => FaultKind::draw_vendor(rng),
        };
        // Most spends are early, and these faults wait for one.
        let waits = matches!(
            kind,
            FaultKind::CrashDuringSpend(_) | FaultKind::FailedCommit { .. } | FaultKind::LateStatements(_)
        );
        let start_max = if waits { 2_000 } else { 6_000 };
        // Long enough for holds to expire and for the host to give up on settlements.
        Self { start: random_ms(rng, 0..start_max), duration: random_ms(rng, 100..9_000), kind }
    }
}

impl Direction {
    fn draw(rng: &mut StdRng) -> Self {
        if rng.random_bool(0.5) { Self::ToNode } else { Self::FromNode }
    }
}

impl DiskFault {
    fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0 | 1 => Self::Stall,
            2 => Self::Reads,
            3 => Self::Writes(rng.random_range(0..12)),
            4 => Self::Syncs,
            5..8 => Self::Full,
            _ => Self::PowerCut(rng.random_range(0..40)),
        }
    }
}

impl FaultKind {
    /// Draws a fault of the vendor and the fraction of requests that it affects, from 0 to 1.
    fn draw_vendor(rng: &mut StdRng) -> Self {
        let delay = VendorFault::Delay(random_ms(rng, 20..12_000));
        let faults = [VendorFault::Error, VendorFault::Hang, delay, VendorFault::Truncated];
        let rate = *[0.3, 0.6, 1.0].choose(rng).expect("not empty");
        Self::Vendor(*faults.choose(rng).expect("not empty"), rate)
    }
}
