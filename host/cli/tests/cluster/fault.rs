//! The faults of a round.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use super::cluster::Cluster;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    NodeKilled(usize),
    NodePaused(usize),
    RedisKilled,
    RedisPaused,
    PostgresKilled,
    PostgresPaused,
    RedisDisconnected(usize),
    PostgresDisconnected(usize),
}

impl Fault {
    pub fn draw(rng: &mut StdRng, nodes: usize) -> Self {
        let node = rng.random_range(0..nodes);
        match rng.random_range(0..8) {
            0 => Self::NodeKilled(node),
            1 => Self::NodePaused(node),
            2 => Self::RedisKilled,
            3 => Self::RedisPaused,
            4 => Self::PostgresKilled,
            5 => Self::PostgresPaused,
            6 => Self::RedisDisconnected(node),
            _ => Self::PostgresDisconnected(node),
        }
    }

    /// Injects the fault for a random time. Cut links and killed nodes stay so until [`Cluster::heal`]; all
    /// other faults are reverted.
    pub fn inject(self, cluster: &mut Cluster, rng: &mut StdRng) {
        // Shorter and longer than the timeouts of the ports and of settlements.
        let longest_ms =
            *[150, 1_500, 6_000].get(rng.random_range(0..10_usize).saturating_sub(7)).unwrap_or(&150);
        let duration = Duration::from_millis(rng.random_range(0..longest_ms));
        let pass = || std::thread::sleep(duration); // the duration of the fault
        match self {
            Self::NodeKilled(node) => cluster.kill_node(node),
            Self::NodePaused(node) => {
                cluster.pause_node(node);
                pass();
                cluster.resume_node(node);
            }
            Self::RedisKilled => {
                cluster.redis.kill();
                pass();
                cluster.redis.restart();
            }
            Self::RedisPaused => {
                cluster.redis.pause();
                pass();
                cluster.redis.resume();
            }
            Self::PostgresKilled => {
                cluster.postgres.kill();
                pass();
                cluster.postgres.restart();
            }
            Self::PostgresPaused => {
                cluster.postgres.pause();
                pass();
                cluster.postgres.resume();
            }
            Self::RedisDisconnected(node) => {
                cluster.links[node].redis.lose_all();
                pass();
            }
            Self::PostgresDisconnected(node) => {
                cluster.links[node].postgres.lose_all();
                pass();
            }
        }
    }
}
