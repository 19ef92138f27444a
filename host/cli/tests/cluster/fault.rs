//! The faults of a round, which overlap and recur.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use enrich_tests::servers::Proxy;
use rand::RngExt;
use rand::rngs::StdRng;

use super::cluster::Cluster;

/// A fault. Nodes are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    NodeKilled(usize),
    NodePaused(usize),
    RedisKilled,
    RedisPaused,
    PostgresKilled,
    PostgresPaused,
    /// A sync of the log fails once.
    SyncFails,
    /// No file of PostgreSQL can be written.
    VolumeFull,
    /// An `ANALYZE` of all tables, under load.
    Analyzed,
    /// The standby is down. The sessions that wait for it are then terminated.
    StandbyAway,
    /// The same, and the standby is then promoted.
    FailedOver,
    RedisDisconnected(usize),
    /// The network loses what the node and PostgreSQL send.
    PostgresDisconnected(usize),
    /// The first host of the node's URL loses all data. The second one works.
    HostLost(usize),
    /// Another session locks this table.
    TableLocked(&'static str),
}

const TABLES: [&str; 8] =
    ["api_key", "balance", "credit_hold", "credit_spend", "person", "settlement", "usage_day", "workspace"];

/// The part that a fault affects. A fault does not begin while another one affects the same part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Node(usize),
    Redis,
    Postgres,
    RedisLink(usize),
    PostgresLink(usize),
}

/// The begin or the end of a fault.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Duration,
    fault: Fault,
    is_begin: bool,
}

/// The faults of a round.
#[derive(Debug)]
pub struct Faults(Vec<Step>);

impl Faults {
    /// Draws up to three faults, each up to three times. `only` is the name of the only fault. `longest` limits
    /// their duration.
    pub fn draw(rng: &mut StdRng, only: &str, longest: Duration) -> Self {
        let (mut steps, mut targets) = (Vec::new(), BTreeSet::new());
        for _ in 0..rng.random_range(1..=3) {
            let mut drawn = std::iter::repeat_with(|| Fault::draw(rng)).take(10_000);
            let fault =
                drawn.find(|fault| format!("{fault:?}").starts_with(only)).expect("a fault of this name");
            if !targets.insert(fault.target()) {
                continue;
            }
            let (mut at, times) = (random(rng, 300), [1, 1, 2, 3][rng.random_range(0..4_usize)]);
            for _ in 0..times {
                // Shorter and longer than the timeouts of the ports and of settlements.
                let ms_max = match rng.random_range(0..40) {
                    0..26 => 150,
                    26..35 => 1_500,
                    35..39 => 6_000,
                    _ => longest.as_millis() as u64,
                };
                let duration = random(rng, ms_max).min(longest);
                steps.push(Step { at, fault, is_begin: true });
                steps.push(Step { at: at + duration, fault, is_begin: false });
                at += duration + random(rng, 500);
            }
        }
        steps.sort_by_key(|step| step.at);
        Self(steps)
    }

    /// Begins and ends the faults, and adds them to `counts`. Killed nodes stay so until [`Cluster::heal`].
    pub fn inject(&self, cluster: &mut Cluster, counts: &mut BTreeMap<String, u32>) {
        let start = Instant::now();
        for Step { at, fault, is_begin } in &self.0 {
            std::thread::sleep(at.saturating_sub(start.elapsed())); // the duration of faults
            if *is_begin {
                *counts.entry(fault.name()).or_default() += 1;
                fault.begin(cluster);
            } else {
                fault.end(cluster);
            }
        }
    }
}

fn random(rng: &mut StdRng, ms_max: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..=ms_max))
}

impl Fault {
    fn draw(rng: &mut StdRng) -> Self {
        let node = rng.random_range(0..Cluster::NODES);
        match rng.random_range(0..15) {
            0 => Self::NodeKilled(node),
            1 => Self::NodePaused(node),
            2 => Self::RedisKilled,
            3 => Self::RedisPaused,
            4 => Self::PostgresKilled,
            5 => Self::PostgresPaused,
            6 => Self::SyncFails,
            7 => Self::VolumeFull,
            8 => Self::Analyzed,
            9 => Self::StandbyAway,
            10 => Self::FailedOver,
            11 => Self::RedisDisconnected(node),
            12 => Self::HostLost(node),
            13 => Self::TableLocked(TABLES[rng.random_range(0..TABLES.len())]),
            _ => Self::PostgresDisconnected(node),
        }
    }

    fn target(self) -> Target {
        match self {
            Self::NodeKilled(node) | Self::NodePaused(node) => Target::Node(node),
            Self::RedisKilled | Self::RedisPaused => Target::Redis,
            Self::RedisDisconnected(node) => Target::RedisLink(node),
            Self::PostgresDisconnected(node) | Self::HostLost(node) => Target::PostgresLink(node),
            _ => Target::Postgres,
        }
    }

    /// Returns the name without the number of the node.
    fn name(self) -> String {
        let name = format!("{self:?}");
        name.split('(').next().unwrap_or_default().to_owned()
    }

    fn begin(self, cluster: &mut Cluster) {
        match self {
            Self::NodeKilled(node) => cluster.kill_node(node),
            Self::NodePaused(node) => cluster.pause_node(node),
            Self::RedisKilled => cluster.redis.kill(),
            Self::RedisPaused => cluster.redis.pause(),
            Self::PostgresKilled => cluster.primary.kill(),
            Self::PostgresPaused => cluster.primary.pause(),
            Self::SyncFails => cluster.primary.fail_next_sync(),
            Self::VolumeFull => cluster.primary.fill_disk(),
            Self::Analyzed => cluster.analyze(),
            Self::StandbyAway | Self::FailedOver => cluster.standby.kill(),
            Self::RedisDisconnected(node) => cluster.links[node].redis.lose_all(),
            Self::PostgresDisconnected(node) => cluster.links[node].postgres.iter().for_each(Proxy::lose_all),
            Self::HostLost(node) => cluster.links[node].postgres[0].lose_all(),
            Self::TableLocked(table) => cluster.lock(table),
        }
    }

    fn end(self, cluster: &mut Cluster) {
        match self {
            Self::NodeKilled(_) | Self::Analyzed => {}
            Self::NodePaused(node) => cluster.resume_node(node),
            Self::RedisKilled => cluster.redis.restart(),
            Self::RedisPaused => cluster.redis.resume(),
            Self::PostgresPaused => cluster.primary.resume(),
            Self::PostgresKilled | Self::SyncFails | Self::VolumeFull => cluster.restart_primary(),
            Self::StandbyAway => {
                cluster.terminate_waiting();
                cluster.standby.restart();
            }
            Self::FailedOver => cluster.fail_over(),
            Self::RedisDisconnected(node) => cluster.links[node].redis.heal(),
            Self::PostgresDisconnected(node) | Self::HostLost(node) => {
                cluster.links[node].postgres.iter().for_each(Proxy::heal);
            }
            Self::TableLocked(_) => cluster.locker = None,
        }
    }
}
