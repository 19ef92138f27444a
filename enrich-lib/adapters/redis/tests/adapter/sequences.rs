//! Faults of the link to Redis in sequence: they last for several counts, turn into each other, come back
//! after the link has recovered, and meet counts in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};

use crate::world::{Behavior, World, count, window};

const DEADLINE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts to connect, and one attempt.
const RECOVERY_MAX: Duration = Duration::from_secs(2);

const FAULTS: [Behavior; 8] = [
    Behavior::Down,
    Behavior::Hangs,
    Behavior::Closes,
    Behavior::Silent,
    Behavior::DelaysReplies,
    Behavior::Fails("LOADING Redis is loading"),
    Behavior::Fails("READONLY You can't write"),
    Behavior::Fails("OOM command not allowed"),
];

#[tokio::test(start_paused = true)]
async fn recovers_from_every_sequence_of_faults_and_repeats_no_number() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let world = World::seeded(seed);
        let mut numbers = BTreeSet::new();
        for _ in 0..8 {
            for _ in 0..rng.random_range(1..4) {
                world.set(FAULTS[rng.random_range(0..FAULTS.len())]);
                for _ in 0..rng.random_range(1..20) {
                    let (mut counts, started) = (JoinSet::new(), Instant::now());
                    for _ in 0..rng.random_range(1..32) {
                        let windows = world.windows.clone();
                        counts.spawn(async move { count(&windows, &window("demo")).await });
                    }
                    for number in counts.join_all().await.into_iter().flatten() {
                        assert!(numbers.insert(number), "seed {seed}: {number} twice");
                    }
                    assert!(started.elapsed() <= DEADLINE, "seed {seed}: {:?}", started.elapsed());
                    advance(Duration::from_millis(rng.random_range(0..400))).await;
                }
            }
            world.set(Behavior::Works);
            let healed = Instant::now();
            let mut counted = world.count().await;
            while counted.is_err() {
                advance(Duration::from_millis(1)).await;
                counted = world.count().await;
            }
            assert!(healed.elapsed() <= RECOVERY_MAX, "seed {seed}: {:?}", healed.elapsed());
            for _ in 0..20 {
                let number = counted.unwrap();
                assert!(numbers.last() < Some(&number), "seed {seed}: {number} after {:?}", numbers.last());
                numbers.insert(number);
                counted = world.count().await;
            }
            numbers.insert(counted.unwrap());
            // The backoff has started again: a connection that worked is replaced at once.
            world.set(Behavior::Fails("LOADING Redis is loading"));
            assert!(world.count().await.is_err());
            world.set(Behavior::Works);
            numbers.insert(world.count().await.unwrap());
        }
    }
}
