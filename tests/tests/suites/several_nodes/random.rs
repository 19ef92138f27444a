//! Random lookups on three nodes while the server is killed and restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::ports::Credits;
use enrich_tests::servers::Postgres;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::world::{Node, World, eventually};

const GRANTED: i64 = 600;

#[test]
fn acknowledged_spends_of_three_nodes_match_the_ledger_under_faults() {
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(run_seed(seed));
            });
        }
    });
}

async fn run_seed(seed: u64) {
    let mut postgres = Postgres::start();
    let [acknowledged, unknown] = [(); 2].map(|()| Arc::new(AtomicI64::new(0)));
    let name = postgres.create_database().await;
    let mut random = StdRng::seed_from_u64(seed);
    let (nodes, lookups) = {
        let world = World::in_database(&postgres, name.clone());
        world.workspace(GRANTED as u64).await;
        let nodes =
            [Arc::new(world.node().await), Arc::new(world.node().await), Arc::new(world.node().await)];
        let lookups: Vec<_> = (0..900)
            .map(|_| {
                let node = nodes[random.random_range(0..3)].clone();
                let lookup = world.lookup(&node, random.random_range(1..4));
                (node, lookup)
            })
            .collect();
        (nodes, lookups)
    };
    let mut tasks = JoinSet::new();
    for (n, (node, lookup)) in lookups.into_iter().enumerate() {
        let (acknowledged, unknown, seed) = (acknowledged.clone(), unknown.clone(), random.random());
        tasks.spawn(async move {
            let mut random = StdRng::seed_from_u64(seed);
            sleep(Duration::from_millis(n as u64 * 5)).await;
            let [spent, unanswered] = look_up(&node, &lookup, &mut random).await;
            acknowledged.fetch_add(spent, Ordering::SeqCst);
            unknown.fetch_add(unanswered, Ordering::SeqCst);
        });
    }
    for _ in 0..2 {
        sleep(Duration::from_millis(random.random_range(300..1_500))).await;
        postgres.kill();
        postgres.restart();
        postgres.pause();
        sleep(Duration::from_millis(random.random_range(0..400))).await;
        postgres.resume();
    }
    tasks.join_all().await;
    for node in &nodes {
        eventually("it closes", async || node.ledger.close().await.is_ok()).await;
    }
    drop(nodes);
    let world = World::in_database(&postgres, name);
    world.end_all_nodes().await;
    let [acknowledged, unknown] = [acknowledged, unknown].map(|credits| credits.load(Ordering::SeqCst));
    assert!(acknowledged > GRANTED / 4, "seed {seed}: only {acknowledged} were spent");
    let [granted, spent, leased] = world.totals().await;
    assert_eq!([granted, leased], [GRANTED, 0], "seed {seed}");
    assert!((acknowledged..=acknowledged + unknown).contains(&spent), "seed {seed}: {spent} were spent");
}

/// Runs one lookup with a random timeout. Returns the credits whose spend was acknowledged, and those whose spend may be
/// committed because its caller stopped waiting.
async fn look_up(node: &Node, hold: &Hold, random: &mut StdRng) -> [i64; 2] {
    let credits = random.random_range(0..=hold.credits);
    let limit = Duration::from_millis(random.random_range(5..4_000));
    let Ok(Ok(HoldOutcome::Granted)) = timeout(Duration::from_secs(3), node.ledger.hold(hold)).await else {
        let _ = node.ledger.settle(hold, Settlement::Release).await;
        return [0, 0];
    };
    sleep(Duration::from_millis(random.random_range(0..50))).await;
    match timeout(limit, node.ledger.settle(hold, Settlement::of(credits))).await {
        Ok(Ok(())) => [credits as i64, 0],
        Ok(Err(_)) => [0, 0],
        Err(_) => [0, credits as i64],
    }
}
