//! Three real nodes behind a balancer, with a real Redis, and a real PostgreSQL with a synchronous standby and
//! PgBouncer, while faults kill, pause and disconnect all of them. After each round, the ledger must agree with
//! the replies that clients received.
//!
//! `CLUSTER_SEED` sets the seed (default 1), and `CLUSTER_ROUNDS` the number of rounds. Without it, there are
//! few rounds with short faults. `CLUSTER_FAULT` is the name of the only fault, for example `NodeKilled`
//! (default: all).
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

use std::collections::BTreeMap;
use std::time::Duration;

use clients::{Clients, Seen};
use cluster::Cluster;
use enrich::within;
use fault::Faults;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The number of rounds and the longest fault, unless `CLUSTER_ROUNDS` is set.
const SHORT: (u64, Duration) = (8, Duration::from_secs(2));

/// The longest fault of a long run: longer than the life of a hold.
const LONGEST: Duration = Duration::from_secs(45);

/// The time in which every node serves again, and agrees with the ledger.
const RECOVERY: Duration = Duration::from_secs(30);

#[test]
fn acknowledged_lookups_are_spent_under_any_fault() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (rounds, longest) = number("CLUSTER_ROUNDS").map_or(SHORT, |rounds| (rounds, LONGEST));
    let seed = number("CLUSTER_SEED").unwrap_or(1);
    let only = std::env::var("CLUSTER_FAULT").unwrap_or_default();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start();
    let (mut seen, mut counts) = (Seen::default(), BTreeMap::new());
    for round in 0..rounds {
        let faults = Faults::draw(&mut rng, &only, longest);
        let fails = |what: &str| -> ! { panic!("CLUSTER_SEED={seed}, round {round}, {faults:?}: {what}") };
        let clients = Clients::start(&cluster);
        std::thread::sleep(Duration::from_millis(rng.random_range(0..300))); // faults start at random times
        faults.inject(&mut cluster, &mut counts);
        cluster.heal().unwrap_or_else(|error| fails(&error));
        let mut received = Seen::default();
        let served = within(RECOVERY, || cluster.serves_everywhere(&mut received).then_some(()));
        served.unwrap_or_else(|| fails("not every node serves again"));
        received.add(clients.stop());
        seen.add(received);
        // Lookups whose clients have gone are completed after a short time.
        let mut differs = String::new();
        let agrees = || cluster.compare(&mut seen).map_err(|difference| differs = difference).ok();
        within(RECOVERY, agrees).unwrap_or_else(|| fails(&differs));
    }
    eprintln!("{rounds} rounds: {seen}; {counts:?}");
    assert!(seen.found > rounds as usize * 10, "too few lookups");
    assert!(seen.refused > 0 || seen.broken > 0, "no lookup was affected by a fault");
    cluster.end(&mut seen);
}
