//! The faults of a round.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use super::cluster::Cluster;

#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    NodeKilled(usize),
    NodeStands(usize),
    RedisKilled,
    RedisStands,
    PostgresKilled,
    PostgresStands,
    RedisOutOfReach(usize),
    PostgresOutOfReach(usize),
}

impl Trouble {
    pub fn draw(dice: &mut StdRng, nodes: usize) -> Self {
        let node = dice.random_range(0..nodes);
        match dice.random_range(0..8) {
            0 => Self::NodeKilled(node),
            1 => Self::NodeStands(node),
            2 => Self::RedisKilled,
            3 => Self::RedisStands,
            4 => Self::PostgresKilled,
            5 => Self::PostgresStands,
            6 => Self::RedisOutOfReach(node),
            _ => Self::PostgresOutOfReach(node),
        }
    }

    /// Injects the fault for a random time. Cut links and killed nodes stay so until [`Cluster::heal`]; all other faults are
    /// reverted.
    pub fn befall(self, cluster: &mut Cluster, dice: &mut StdRng) {
        // Shorter and longer than the timeouts of the ports and of settlements.
        let longest_ms =
            *[150, 1_500, 6_000].get(dice.random_range(0..10_usize).saturating_sub(7)).unwrap_or(&150);
        let a_while = Duration::from_millis(dice.random_range(0..longest_ms));
        let pass = || std::thread::sleep(a_while); // the duration of the fault
        match self {
            Self::NodeKilled(node) => cluster.kill_node(node),
            Self::NodeStands(node) => {
                cluster.pause_node(node);
                pass();
                cluster.resume_node(node);
            }
            Self::RedisKilled => {
                cluster.redis.kill();
                pass();
                cluster.redis.restart();
            }
            Self::RedisStands => {
                cluster.redis.pause();
                pass();
                cluster.redis.resume();
            }
            Self::PostgresKilled => {
                cluster.postgres.kill();
                pass();
                cluster.postgres.restart();
            }
            Self::PostgresStands => {
                cluster.postgres.pause();
                pass();
                cluster.postgres.resume();
            }
            Self::RedisOutOfReach(node) => {
                cluster.links[node].redis.cut();
                pass();
            }
            Self::PostgresOutOfReach(node) => {
                cluster.links[node].postgres.cut();
                pass();
            }
        }
    }
}
