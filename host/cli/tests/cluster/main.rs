//! Three real nodes behind a balancer, with a real PostgreSQL and a real Redis, while faults kill, pause and
//! disconnect all of them. After each round the ledger must agree with the replies that clients received.
//!
//! `CLUSTER_ROUNDS` sets the number of rounds (default 50) and `CLUSTER_SEED` the seed (default 1).
//! `CLUSTER_FAULT` is the name of the only fault, for example `NodeKilled` (default: all).
//!
//! - `cluster`: the processes
//! - `clients`: the clients
//! - `fault`: the faults
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, reason = "a failed step fails the test")]

mod clients;
mod cluster;
#[path = "../enrich/mod.rs"]
mod enrich;
mod fault;

use std::time::Duration;

use clients::{Clients, Seen};
use cluster::Cluster;
use enrich::{eventually, within};
use fault::Fault;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[test]
fn acknowledged_lookups_are_spent_under_any_fault() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (number("CLUSTER_ROUNDS", 50), number("CLUSTER_SEED", 1));
    let only = std::env::var("CLUSTER_FAULT").unwrap_or_default();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start();
    let mut seen = Seen::default();
    for round in 0..rounds {
        let mut faults = std::iter::repeat_with(|| Fault::draw(&mut rng, Cluster::NODES)).take(1_000);
        let fault =
            faults.find(|fault| format!("{fault:?}").starts_with(&only)).expect("a fault of this name");
        let clients = Clients::start(&cluster);
        std::thread::sleep(Duration::from_millis(rng.random_range(0..300))); // faults start at random times
        fault.inject(&mut cluster, &mut rng);
        cluster.heal();
        let mut received = Seen::default();
        let what = format!("every node serves again: CLUSTER_SEED={seed}, round {round}, {fault:?}");
        eventually(&what, || cluster.serves_everywhere(&mut received).then_some(()));
        received.add(clients.stop());
        seen.add(received);
        // Lookups whose clients have gone are completed after a short time.
        let mut differs = String::new();
        let agrees = || cluster.compare(&mut seen).map_err(|difference| differs = difference).ok();
        let agreed = within(Duration::from_secs(15), agrees);
        assert!(agreed.is_some(), "CLUSTER_SEED={seed}, round {round}, {fault:?}: {differs}");
    }
    eprintln!("{rounds} rounds: {seen}");
    assert!(seen.found > rounds as usize * 10, "too few lookups");
    assert!(seen.refused > 0 || seen.broken > 0, "no lookup was affected by a fault");
    cluster.end(&mut seen);
}
