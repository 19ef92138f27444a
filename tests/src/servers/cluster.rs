//! A Redis Cluster.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::redis::{Redis, RedisOptions};

/// The slots of each of three masters, out of 16,384.
const SHARES: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

const TIMEOUT: Duration = Duration::from_secs(30);

/// A Redis Cluster of masters without replicas.
#[derive(Debug)]
pub struct RedisCluster {
    pub masters: Vec<Redis>,
}

impl RedisCluster {
    /// Starts a cluster of three masters.
    pub fn start() -> Self {
        Self::with(&SHARES, false)
    }

    /// Starts a cluster of one master that accepts TLS as well.
    pub fn with_tls() -> Self {
        Self::with(&[(0, 16_383)], true)
    }

    fn with(shares: &[(u16, u16)], tls: bool) -> Self {
        let masters: Vec<_> = shares.iter().map(|_| start(tls)).collect();
        for (master, (from, to)) in masters.iter().zip(shares) {
            master.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            for other in &masters {
                master.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.port(), other.bus_port()));
            }
        }
        let started = Instant::now();
        while !masters.iter().all(|master| is_ready(master, shares.len())) {
            assert!(started.elapsed() < TIMEOUT, "the Cluster did not start");
            sleep(Duration::from_millis(20));
        }
        Self { masters }
    }

    /// Returns a URL that lists all masters.
    pub fn url(&self) -> String {
        let nodes: Vec<_> =
            self.masters.iter().map(|master| format!("127.0.0.1:{}", master.port())).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Returns a TLS URL that lists all masters.
    pub fn tls_url(&self) -> String {
        let nodes: Vec<_> =
            self.masters.iter().map(|master| master.tls_url().replace("rediss://", "")).collect();
        format!("rediss+cluster://{}", nodes.join(","))
    }
}

fn start(tls: bool) -> Redis {
    let mut settings = vec![("cluster-enabled", "yes".to_owned())];
    if tls {
        // Makes the nodes announce their TLS ports to TLS clients.
        settings.push(("tls-cluster", "yes".to_owned()));
    }
    Redis::with(&RedisOptions { settings, tls })
}

fn is_ready(master: &Redis, masters: usize) -> bool {
    let info: String = master.ask("CLUSTER INFO");
    info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{masters}\r\n"))
}
