//! Three real nodes behind a balancer, on a real PostgreSQL and a real Redis, while all of them are killed, stopped and cut
//! off. After each round the books have to agree with what the clients were told.
//!
//! `CLUSTER_ROUNDS` says how many rounds (100), `CLUSTER_SEED` which ones.
//!
//! `proxy` a link that can be cut · `cluster` what runs · `clients` who asks · `trouble` what goes wrong.
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
        std::thread::sleep(Duration::from_millis(dice.random_range(0..300))); // trouble comes at any moment
        trouble.befall(&mut cluster, &mut dice);
        cluster.heal();
        let mut heard = Seen::default();
        eventually("every node serves again", || cluster.serves_everywhere(&mut heard).then_some(()));
        heard.add(clients.stop());
        seen.add(heard);
        // A spend that nobody was told of is taken back in a moment.
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
