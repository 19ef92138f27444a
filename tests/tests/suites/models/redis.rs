//! Checks that the fake Redis counts as a real server does. The simulation relies on this.
//!
//! The adapter makes the same random counts on both and must get the same results, also after both lose their
//! data.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::redis::Redis as Fake;
use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use enrich_redis::{Connect, Login, RedisPolicy, RedisUrl, RedisWindows, Stream, WindowStoreError};
use enrich_tests::servers::Redis;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::duplex;

#[derive(Clone, Debug)]
enum Step {
    /// Concurrent requests in one of the windows.
    Count { window: usize, requests: usize },
    /// The server loses its counters and its script.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = (0..WINDOWS, 1..6_usize).prop_map(|(window, requests)| Step::Count { window, requests });
    vec(prop_oneof![12 => count, 1 => Just(Step::Forget)], 1..30)
}

const WINDOWS: usize = 6;

/// Returns windows of two workspaces and two lengths, one that ended so long ago that it is no longer
/// counted, and one that opens so late that it is not counted yet.
fn windows() -> [Window; WINDOWS] {
    let now = SystemArrivals.arrive().now;
    let day = Quota::new(500, Quota::WINDOW_SECONDS_MAX).unwrap();
    let hour = Quota::new(500, 3_600).unwrap();
    let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
    let (long_ago, much_later) =
        (now - Duration::from_secs(2 * 86_400), now + Duration::from_secs(2 * 86_400));
    [
        day.window(&one, now),
        day.window(&two, now),
        hour.window(&one, now),
        hour.window(&two, now),
        day.window(&one, long_ago),
        day.window(&one, much_later),
    ]
}

#[test]
fn fake_counts_like_redis() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let real = Redis::start();
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            runtime.block_on(compare(&real, &steps));
            Ok(())
        })
        .unwrap();
}

async fn compare(real: &Redis, steps: &[Step]) {
    let policy = RedisPolicy { timeout: Duration::from_secs(20), ..RedisPolicy::default() };
    let fake = Fake::new(|| SystemArrivals.arrive().now.unix_ms());
    let on_real = RedisWindows::open(&real.url().parse::<RedisUrl>().unwrap(), policy, 7).unwrap();
    let on_fake = RedisWindows::new(Arc::new(Pipe(fake.clone())), Login::default(), policy, 7);
    real.ask::<()>("FLUSHALL");
    real.ask::<()>("SCRIPT FLUSH");
    let windows = windows();
    for step in steps {
        match *step {
            Step::Count { window, requests } => {
                let window = &windows[window];
                let (real_result, faked) =
                    (count(&on_real, window, requests).await, count(&on_fake, window, requests).await);
                assert_eq!(faked, real_result, "{step:?}");
            }
            Step::Forget => {
                real.ask::<()>("FLUSHALL");
                real.ask::<()>("SCRIPT FLUSH");
                fake.clear();
            }
        }
    }
}

/// Makes one count and then `requests` concurrent counts, and returns their results.
async fn count(windows: &RedisWindows, window: &Window, requests: usize) -> Vec<Result<u64, String>> {
    let mut results = vec![text(windows.count(window).await)];
    let at_once = (0..requests).map(|_| windows.count(window));
    for answer in futures_util::future::join_all(at_once).await {
        results.push(text(answer));
    }
    results
}

/// Formats an error without its duration, which differs between the two servers.
fn text(counted: Result<u64, enrich_lib::refusal::PortError>) -> Result<u64, String> {
    counted.map_err(|error| match error.downcast_ref::<WindowStoreError>() {
        Some(WindowStoreError::WindowExpired(_)) => "expired".to_owned(),
        Some(WindowStoreError::WindowAhead(_)) => "ahead".to_owned(),
        _ => error.to_string(),
    })
}

/// A connector whose connections are in-memory pipes to a task of the fake.
struct Pipe(Fake);

#[async_trait]
impl Connect for Pipe {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (ours, theirs) = duplex(4096);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        Ok(Box::new(ours))
    }
}
