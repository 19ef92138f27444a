//! A benchmark: `cargo test --release -p enrich-tests --test redis -- --ignored --nocapture speed`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use enrich_lib::ports::Windows;
use enrich_tests::servers::Redis;
use tokio::task::JoinSet;

use super::{long_timeouts, open, window};

const CALLERS: usize = 256;
const LASTS: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, and finds no bug"]
#[allow(clippy::print_stdout, reason = "prints the measurements")]
async fn measures_counts_per_second_of_256_callers() {
    let redis = Redis::start();
    for names in [1, 1_000] {
        let windows = Arc::new(open(&redis.url(), long_timeouts()));
        let all: Arc<Vec<_>> = Arc::new((0..names).map(|name| window(&format!("w-{name}"))).collect());
        redis.ask::<()>("CONFIG RESETSTAT");
        let (mut callers, started) = (JoinSet::new(), Instant::now());
        for caller in 0..CALLERS {
            let (windows, all) = (Arc::clone(&windows), Arc::clone(&all));
            callers.spawn(async move {
                let mut counted = 0_usize;
                while started.elapsed() < LASTS {
                    windows.count(&all[(caller * 31 + counted * 7) % all.len()]).await.unwrap();
                    counted += 1;
                }
                counted
            });
        }
        let counted: usize = callers.join_all().await.into_iter().sum();
        let statistics: String = redis.ask("INFO commandstats");
        let line = statistics
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha"))
            .unwrap_or_default()
            .to_owned();
        let rate = counted as f64 / started.elapsed().as_secs_f64();
        println!("{names} windows: {rate:.0} counts/s; {line}");
    }
}
