//! Three real nodes behind a balancer, with a real PostgreSQL and a real Redis, while faults kill, pause and disconnect all
//! of them. After each round the ledger must agree with the replies that clients received.
//!
//! `CLUSTER_ROUNDS` sets the number of rounds (default 100) and `CLUSTER_SEED` the seed (default 1).
//!
//! - `proxy`: a link that can be cut
//! - `cluster`: the processes
//! - `clients`: the clients
//! - `trouble`: the faults
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test that ends where it can't go on"
)]

mod clients;
mod cluster;
#[path = "../enrich/mod.rs"]
mod enrich;
mod proxy;
mod trouble;

use std::time::Duration;

use clients::{Clients, Seen};
use cluster::Cluster;
use enrich::{eventually, within};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use trouble::Trouble;

#[test]
fn whatever_fails_what_was_answered_is_spent_and_nothing_else_is() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (number("CLUSTER_ROUNDS", 100), number("CLUSTER_SEED", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start();
    let mut seen = Seen::default();
    for round in 0..rounds {
        let trouble = Trouble::draw(&mut dice, Cluster::NODES);
        let clients = Clients::start(&cluster);
        std::thread::sleep(Duration::from_millis(dice.random_range(0..300))); // faults start at random times
        trouble.befall(&mut cluster, &mut dice);
        cluster.heal();
        let mut heard = Seen::default();
        eventually("every node serves again", || cluster.serves_everywhere(&mut heard).then_some(()));
        heard.add(clients.stop());
        seen.add(heard);
        // Unacknowledged spends are voided after a short time.
        let mut differs = String::new();
        let agrees = || cluster.compare(&mut seen).map_err(|difference| differs = difference).ok();
        let agreed = within(Duration::from_secs(15), agrees);
        assert!(agreed.is_some(), "CLUSTER_SEED={seed}, round {round}, {trouble:?}: {differs}");
    }
    eprintln!("{rounds} rounds: {seen}");
    assert!(seen.found > rounds as usize * 10, "too little was asked");
    assert!(seen.refused > 0, "no trouble met a lookup: the test shows nothing");
    cluster.end(&mut seen);
}
