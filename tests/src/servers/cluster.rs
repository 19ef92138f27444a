//! A Redis Cluster.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::free_port;
use super::redis::{Redis, RedisOptions};

/// The share of each of three masters in the 16,384 slots.
const SHARES: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

const PATIENCE: Duration = Duration::from_secs(30);

/// Masters that know one another, without replicas.
#[derive(Debug)]
pub struct RedisCluster {
    pub masters: Vec<Redis>,
}

impl RedisCluster {
    /// Three masters.
    pub fn start() -> Self {
        Self::with(&SHARES, false)
    }

    /// One master, which speaks TLS too.
    pub fn with_tls() -> Self {
        Self::with(&[(0, 16_383)], true)
    }

    fn with(shares: &[(u16, u16)], tls: bool) -> Self {
        let masters: Vec<_> = shares.iter().map(|_| start(tls)).collect();
        for (master, (from, to)) in masters.iter().map(|(master, _)| master).zip(shares) {
            master.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            for (other, bus_port) in &masters {
                master.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {bus_port}", other.port()));
            }
        }
        let masters: Vec<_> = masters.into_iter().map(|(master, _)| master).collect();
        let started = Instant::now();
        while !masters.iter().all(|master| is_ready(master, shares.len())) {
            assert!(started.elapsed() < PATIENCE, "the Cluster does not come up");
            sleep(Duration::from_millis(20));
        }
        Self { masters }
    }

    /// All of its masters.
    pub fn url(&self) -> String {
        let nodes: Vec<_> =
            self.masters.iter().map(|master| format!("127.0.0.1:{}", master.port())).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// The same over TLS.
    pub fn tls_url(&self) -> String {
        let nodes: Vec<_> =
            self.masters.iter().map(|master| master.tls_url().replace("rediss://", "")).collect();
        format!("rediss+cluster://{}", nodes.join(","))
    }
}

fn start(tls: bool) -> (Redis, u16) {
    let bus_port = free_port();
    let mut settings = vec![("cluster-enabled", "yes".to_owned()), ("cluster-port", bus_port.to_string())];
    if tls {
        // So that clients over TLS are told of the other nodes' ports for TLS.
        settings.push(("tls-cluster", "yes".to_owned()));
    }
    (Redis::with(&RedisOptions { settings, tls }), bus_port)
}

fn is_ready(master: &Redis, masters: usize) -> bool {
    let info: String = master.ask("CLUSTER INFO");
    info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{masters}\r\n"))
}
