//! The processes: PostgreSQL with a standby, PgBouncer, Redis, three nodes with links to them, and a balancer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use enrich_tests::servers::{Client, Pooler, Postgres, Proxy, Redis};
use tokio::runtime::Runtime;

use super::RECOVERY;
use super::clients::Seen;
use super::enrich::{EMAIL, Enrich, Server, within};

/// Never exhausted.
const GRANTED: u64 = 1_000_000_000;
const LIMIT: u64 = 4_000_000_000;

/// When the hold of a killed node expires.
const HOLD_TTL: Duration = Duration::from_secs(30);

/// The settings of PostgreSQL. It keeps the log that a standby has not received yet.
const SETTINGS: [&str; 1] = ["wal_keep_size=1GB"];

/// The connections of all nodes.
const BACKENDS_MAX: i64 = 8 * Cluster::NODES as i64;

/// How long an operator waits between the termination of sessions and the end of the primary.
const READABLE: Duration = Duration::from_millis(300);

pub struct Cluster {
    runtime: Runtime,
    pub primary: Postgres,
    /// Each commit of a spend waits for it.
    pub standby: Postgres,
    pub redis: Redis,
    /// Leads to the primary.
    front: Proxy,
    /// Between the last node and the primary.
    pooler: Pooler,
    database: String,
    enrich: Enrich,
    pub key: String,
    nodes: Vec<Option<Server>>,
    pub links: Vec<Links>,
    /// The session that locks a table.
    pub locker: Option<Client>,
    balancer: Proxy,
    /// The lookups whose spends were compared with the replies.
    compared: BTreeSet<String>,
}

/// The links of a node to its stores.
pub struct Links {
    /// The links to the two hosts of its URL, which lead to the same server.
    pub postgres: [Proxy; 2],
    pub redis: Proxy,
}

impl Cluster {
    pub const NODES: usize = 3;

    /// The node that uses PgBouncer.
    const POOLED: usize = 2;

    pub fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let primary = Postgres::start_on_failing_disk(&SETTINGS);
        let (standby, redis) = (primary.start_standby(), Redis::start());
        let database = runtime.block_on(primary.create_database());
        runtime.block_on(primary.require_standby());
        let front = runtime.block_on(Proxy::start(primary.port()));
        let pooler = Pooler::start(front.port());
        let enrich = Enrich::with_database(url([front.port()], &database)).without_deadline();
        let key = enrich.make_key(GRANTED, LIMIT);
        enrich.import_ada();
        let proxy = |port| runtime.block_on(Proxy::start(port));
        let links: Vec<_> = (0..Self::NODES)
            .map(|node| {
                let port = if node == Self::POOLED { pooler.port() } else { front.port() };
                Links { postgres: [proxy(port), proxy(port)], redis: proxy(redis.port()) }
            })
            .collect();
        let balancer = runtime.block_on(Proxy::balance(Vec::new()));
        let nodes = (0..Self::NODES).map(|_| None).collect();
        let mut cluster = Self {
            runtime,
            primary,
            standby,
            redis,
            front,
            pooler,
            database,
            enrich,
            key,
            nodes,
            links,
            locker: None,
            balancer,
            compared: BTreeSet::new(),
        };
        cluster.heal().unwrap();
        cluster
    }

    pub fn balancer(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.balancer.port()).into()
    }

    /// Kills a node, if it runs.
    pub fn kill_node(&mut self, node: usize) {
        self.nodes[node].take().map(Server::kill);
    }

    pub fn pause_node(&self, node: usize) {
        self.nodes[node].as_ref().unwrap().pause();
    }

    pub fn resume_node(&self, node: usize) {
        self.nodes[node].as_ref().unwrap().resume();
    }

    /// Restarts the primary, on a disk that works.
    pub fn restart_primary(&mut self) {
        self.primary.repair_disk();
        self.primary.kill();
        self.primary.restart();
    }

    /// Terminates the sessions that wait for the standby. Their commits are then visible.
    pub fn terminate_waiting(&self) {
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        self.runtime.block_on(self.primary.sql("postgres", terminate));
    }

    /// Promotes the standby, as it was when it was killed, and starts another one.
    pub fn fail_over(&mut self) {
        self.terminate_waiting();
        std::thread::sleep(READABLE); // what only the primary has can be read
        self.primary.kill();
        self.standby.restart();
        self.runtime.block_on(self.standby.promote());
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.front.lead_to(self.primary.port());
        self.standby = self.primary.start_standby();
        self.runtime.block_on(self.primary.require_standby());
    }

    /// Locks a table until `locker` is dropped.
    pub fn lock(&mut self, table: &str) {
        self.locker = Some(self.runtime.block_on(async {
            let client = self.primary.client(&self.database).await;
            client.batch_execute(&format!("BEGIN; LOCK TABLE {table}")).await.unwrap();
            client
        }));
    }

    /// Makes the statistics of all tables.
    pub fn analyze(&self) {
        self.runtime.block_on(self.primary.sql(&self.database, "ANALYZE"));
    }

    /// Restores all links, starts all nodes that do not run, and leads the balancer to all nodes.
    ///
    /// Errors: why a node does not start.
    pub fn heal(&mut self) -> Result<(), String> {
        for (links, node) in self.links.iter().zip(&mut self.nodes) {
            links.postgres.iter().for_each(Proxy::heal);
            links.redis.heal();
            if node.is_some() {
                continue;
            }
            let database = url(links.postgres.iter().map(Proxy::port), &self.database);
            let database = format!("ENRICH_DATABASE={database}");
            let windows = format!("ENRICH_WINDOWS=redis://127.0.0.1:{}", links.redis.port());
            // Retries like a supervisor, because a node does not start while PostgreSQL replies too slowly.
            let mut failed = String::new();
            let start = || {
                self.pooler.restart_if_exited();
                let started = self.enrich.try_serve(&[&database, &windows]);
                started.map_err(|error| failed = error).ok()
            };
            let started = within(RECOVERY, start);
            *node = Some(started.ok_or(failed)?);
        }
        let ports = self.nodes.iter().flatten().map(|node| node.address().port()).collect();
        self.balancer.balance_over(ports);
        Ok(())
    }

    /// Returns whether each node currently finds the person. Restarts the pooler, as a supervisor does.
    pub fn serves_everywhere(&mut self, seen: &mut Seen) -> bool {
        self.pooler.restart_if_exited();
        self.nodes.iter().flatten().all(|node| match node.connect().enrich(&self.key, EMAIL) {
            Ok(reply) => seen.note(&reply),
            Err(_) => seen.lose(),
        })
    }

    /// Compares the ledger with the replies that clients received since the last comparison.
    pub fn compare(&mut self, seen: &mut Seen) -> Result<(), String> {
        let spent = self.spent();
        let new: BTreeSet<_> = spent.difference(&self.compared).cloned().collect();
        let lost = seen.acknowledged.difference(&new).count() + self.compared.difference(&spent).count();
        if lost > 0 {
            return Err(format!("{lost} lookups were answered and are not spent"));
        }
        let unacknowledged = new.difference(&seen.acknowledged).count();
        if unacknowledged > seen.unanswered {
            return Err(format!(
                "{unacknowledged} spends were not acknowledged, but only {} requests had no reply",
                seen.unanswered
            ));
        }
        // Checks that the totals match the rows, and that no credit is counted twice.
        self.enrich.ok(&["check"]);
        self.compared = spent;
        (seen.acknowledged, seen.unanswered) = (BTreeSet::new(), 0);
        Ok(())
    }

    /// Returns the lookups with a spend.
    fn spent(&self) -> BTreeSet<String> {
        let select = "SELECT 'lookup_' || encode(lookup_id, 'hex') FROM credit_spend";
        self.runtime.block_on(async {
            let rows = self.primary.client(&self.database).await.query(select, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        })
    }

    /// Stops all nodes, and compares. Then nodes run until the holds of killed nodes have expired.
    pub fn end(mut self, seen: &mut Seen) {
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.stop();
        }
        self.compare(seen).unwrap();
        self.heal().unwrap();
        let spent = self.compared.len() as u64;
        let expired = within(HOLD_TTL * 2, || {
            let credits = self.enrich.credits("demo");
            let output =
                ["granted", "available", "held", "spent"].map(|name| credits[name].as_u64().unwrap());
            (output == [GRANTED, GRANTED - spent, 0, spent]).then_some(())
        });
        expired.expect("all holds expire");
        let select = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let backends = || self.runtime.block_on(self.primary.numbers(&self.database, select))[0];
        let are_few = within(HOLD_TTL, || (backends() <= BACKENDS_MAX).then_some(()));
        are_few.unwrap_or_else(|| panic!("{} backends serve {} nodes", backends(), Self::NODES));
    }
}

fn url(ports: impl IntoIterator<Item = u16>, database: &str) -> String {
    let hosts: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres@{}/{database}?sslmode=disable", hosts.join(","))
}
