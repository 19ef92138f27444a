//! A Redis Cluster of three masters.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::free_port;
use super::redis::{Redis, RedisOptions};

/// The share of each master in the 16,384 slots.
const SLOTS: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

const PATIENCE: Duration = Duration::from_secs(30);

/// Three masters that know one another.
#[derive(Debug)]
pub struct RedisCluster {
    pub masters: Vec<Redis>,
}

impl RedisCluster {
    pub fn start() -> Self {
        let masters: Vec<_> = SLOTS.iter().map(|_| start()).collect();
        for (master, (from, to)) in masters.iter().map(|(master, _)| master).zip(SLOTS) {
            master.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            for (other, bus_port) in &masters {
                master.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {bus_port}", other.port()));
            }
        }
        let masters: Vec<_> = masters.into_iter().map(|(master, _)| master).collect();
        let started = Instant::now();
        while !masters.iter().all(is_ready) {
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
}

fn start() -> (Redis, u16) {
    let bus_port = free_port();
    let settings = vec![("cluster-enabled", "yes".to_owned()), ("cluster-port", bus_port.to_string())];
    (Redis::with(&RedisOptions { settings, tls: false }), bus_port)
}

fn is_ready(master: &Redis) -> bool {
    let info: String = master.ask("CLUSTER INFO");
    info.contains("cluster_state:ok") && info.contains("cluster_size:3")
}
