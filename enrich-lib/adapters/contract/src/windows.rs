//! Rules for burst windows: each counts 1, 2, 3…, independently of all other windows.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window, Workspace};
use tokio::time::Instant;

use crate::concurrency::together;

/// The time for which one window is counted. A store with its own clock keeps a counter for twice as long.
const COUNTED: Duration = Duration::from_secs(5);

/// Generates the tests of the rules for burst windows.
///
/// `$open` returns `(Arc<dyn Windows>, Timestamp)`: a fresh store and its current time.
#[macro_export]
macro_rules! windows_contract {
    ($($open:tt)*) => {
        $crate::rules! { windows, ($($open)*),
            window_counts_beyond_its_limit
            next_window_counts_from_one
            workspaces_have_separate_windows
            test_keys_have_separate_windows
            window_lengths_have_separate_windows
            late_request_does_not_change_the_next_window
            late_request_is_counted_in_its_window
            concurrent_requests_get_distinct_counts
        }
    };
}

pub async fn window_counts_beyond_its_limit((windows, now): (Arc<dyn Windows>, Timestamp)) {
    let window = Quota::new(1, 60).unwrap().window(&"demo".parse().unwrap(), now);
    assert_eq!(counts(&*windows, &window, 3).await, [1, 2, 3]);
}

pub async fn next_window_counts_from_one((windows, now): (Arc<dyn Windows>, Timestamp)) {
    // Enough windows that a store with room for only a few must reuse it, and short enough that a store with
    // a clock of its own accepts all of them.
    let mut this = short_window("demo", now - Duration::from_secs(8));
    for _ in 0..4 {
        assert_eq!(counts(&*windows, &this, 3).await, [1, 2, 3]);
        this = short_window("demo", this.closes_at());
    }
}

pub async fn workspaces_have_separate_windows((windows, now): (Arc<dyn Windows>, Timestamp)) {
    let a = window("a", now);
    // The windows have the same number, which exposes a store that keys its counters by the number alone.
    let b = (0..).map(|i| window(&format!("b{i}"), now)).find(|b| b.number() == a.number()).unwrap();
    assert_eq!(counts(&*windows, &a, 2).await, [1, 2]);
    assert_eq!(counts(&*windows, &b, 2).await, [1, 2]);
    // So many that a store with room for a fixed number evicts a counter too early. The names differ at the end of
    // their maximum length, and by case.
    for n in 0..1_000_u64 {
        let letters = (0..WorkspaceId::OCTETS_MAX).rev().map(|bit| if n >> bit & 1 == 0 { 'a' } else { 'A' });
        assert_eq!(counts(&*windows, &window(&String::from_iter(letters), now), 1).await, [1]);
    }
    assert_eq!(counts(&*windows, &a, 1).await, [3]);
}

pub async fn test_keys_have_separate_windows((windows, now): (Arc<dyn Windows>, Timestamp)) {
    let workspace = Workspace::new("demo".parse().unwrap(), Quota::default());
    let (live, test) = (workspace.window(now), workspace.with_test(true).window(now));
    for count in 1..4 {
        assert_eq!(counts(&*windows, &live, 2).await, [2 * count - 1, 2 * count]);
        assert_eq!(counts(&*windows, &test, 1).await, [count]);
    }
}

pub async fn window_lengths_have_separate_windows((windows, now): (Arc<dyn Windows>, Timestamp)) {
    // The keys of a workspace may have different limits.
    let window = |length, at| Quota::new(1, length).unwrap().window(&"demo".parse().unwrap(), at);
    let [first, medium, long] = [1, 5, Quota::WINDOW_SECONDS_MAX].map(|length| window(length, now));
    assert_eq!(counts(&*windows, &long, 1).await, [1]);
    for seconds in 0..=Window::LATE_MAX.as_secs() {
        let short = window(1, now + Duration::from_secs(seconds));
        assert_eq!(counts(&*windows, &short, 2).await, [1, 2]);
    }
    assert_eq!(counts(&*windows, &medium, 1).await, [1]);
    for (window, count) in [(&long, 2), (&first, 3), (&medium, 2)] {
        assert_eq!(counts(&*windows, window, 1).await, [count]);
    }
}

pub async fn late_request_does_not_change_the_next_window((windows, now): (Arc<dyn Windows>, Timestamp)) {
    // The request reads the clock just before the end of its window and is counted just after it.
    let next = short_window("demo", now);
    let last = short_window("demo", now - Duration::from_secs(5));
    assert_eq!(counts(&*windows, &last, 2).await, [1, 2]);
    assert_eq!(counts(&*windows, &next, 2).await, [1, 2]);
    assert_eq!(counts(&*windows, &last, 1).await, [3]);
    assert_eq!(counts(&*windows, &next, 1).await, [3]);
}

pub async fn late_request_is_counted_in_its_window((windows, now): (Arc<dyn Windows>, Timestamp)) {
    // For example, the node's clock is behind and its key lookup was slow.
    let short = Quota::new(1, 1).unwrap();
    let window = |at| short.window(&"demo".parse().unwrap(), at);
    let late = window(now);
    assert_eq!(counts(&*windows, &late, 1).await, [1]);
    for seconds in 1..=Window::LATE_MAX.as_secs() {
        let current = window(now + Duration::from_secs(seconds));
        assert_eq!(counts(&*windows, &current, 2).await, [1, 2]);
    }
    assert_eq!(counts(&*windows, &late, 1).await, [2]);
}

pub async fn concurrent_requests_get_distinct_counts((windows, now): (Arc<dyn Windows>, Timestamp)) {
    let (window, began) = (window("demo", now), Instant::now());
    let counted = together(|_| {
        let (windows, window) = (windows.clone(), window.clone());
        async move {
            let mut all = counts(&*windows, &window, 4).await;
            // More than 16 bits, if the store is fast enough.
            while all.len() < 1_025 && began.elapsed() < COUNTED {
                all.extend(counts(&*windows, &window, 1).await);
            }
            all
        }
    });
    let mut all = counted.await.concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=all.len() as u64), "each count is returned once");
}

pub(crate) async fn counts(windows: &dyn Windows, window: &Window, times: usize) -> Vec<u64> {
    let mut counts = Vec::new();
    for _ in 0..times {
        counts.push(windows.count(window).await.unwrap());
    }
    counts
}

/// Returns a window of 5 s.
fn short_window(workspace: &str, now: Timestamp) -> Window {
    Quota::new(500, 5).unwrap().window(&workspace.parse().unwrap(), now)
}

pub(crate) fn window(workspace: &str, now: Timestamp) -> Window {
    Quota::default().window(&workspace.parse().unwrap(), now)
}
