//! The burst limit of a workspace: a quota, windows and the table that counts requests, with a clock that
//! lags and jumps.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::memory::WindowTable;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::window::Quota;
use futures_executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Requests read the clock before they are counted, so that they reach the table slightly out of order.
    #[test]
    fn never_admits_more_than_limit(
        quota in quota(),
        workspaces in 1..=3_usize,
        steps in vec((0..3_usize, gap(), jitter()), 1..400),
    ) {
        let mut burst = Burst::new(quota);
        let mut clock = 1_000_000_000;
        for (workspace, gap, late) in steps {
            clock += gap;
            burst.request(workspace % workspaces, clock - late);
        }
        burst.check()?;
    }

    #[test]
    fn permanent_clock_jump_starts_new_window_with_limit(
        quota in quota(),
        before in vec((gap(), jitter()), 1..100),
        jump in jump(),
        after in vec((gap(), jitter()), 1..200),
    ) {
        let mut burst = Burst::new(quota);
        let mut clock = burst.run(1_000_000_000, &before);
        burst.admitted.clear();
        clock = clock.checked_add_signed(jump).unwrap();
        burst.run(clock, &after);
        burst.check()?;
    }

    #[test]
    fn temporary_clock_jump_keeps_window(
        quota in quota(),
        before in vec(gap(), 1..100),
        jump in jump(),
        away in 1..20_usize,
        after in vec(gap(), 1..200),
    ) {
        let on_time = |gaps: &[u64]| gaps.iter().map(|gap| (*gap, 0)).collect::<Vec<_>>();
        let mut burst = Burst::new(quota);
        let clock = burst.run(1_000_000_000, &on_time(&before));
        let admitted = burst.admitted.clone(); // without the jump's windows, which the clock may reach again
        for _ in 0..away {
            burst.request(0, clock.checked_add_signed(jump).unwrap());
        }
        burst.admitted = admitted;
        burst.run(clock, &on_time(&after));
        burst.check()?;
    }

    #[test]
    fn workspaces_do_not_affect_each_other(
        quota in quota(),
        steps in vec((0..3_usize, gap(), jitter()), 1..200),
    ) {
        let (mut together, mut apart) = (Burst::new(quota), [0; 3].map(|_| Burst::new(quota)));
        let mut clock = 1_000_000_000;
        for (workspace, gap, late) in steps {
            clock += gap;
            let alone = apart[workspace].request(workspace, clock - late);
            prop_assert_eq!(together.request(workspace, clock - late), alone);
        }
    }
}

#[test]
fn late_window_evicts_oldest_window() {
    let quota = Quota::new(2, 60).unwrap();
    for first in [0, 1, 2] {
        let mut burst = Burst::new(quota);
        // An idle window, a request that is one window late, then more requests in the current window.
        let windows = [10 - first, 10, 12, 11, 12, 12];
        let admitted = windows.map(|window| burst.request(0, 1_000_000_000 + window * 60_000));
        assert_eq!(admitted[2..], [true, true, true, false], "{windows:?}");
    }
}

#[test]
fn keeps_out_of_order_windows_while_requests_may_be_late() {
    let mut burst = Burst::new(Quota::new(1, 5).unwrap());
    let admitted = [2, 1, 4, 3, 2].map(|window| burst.request(0, 1_000_000_000 + window * 5_000));
    assert_eq!(admitted, [true, true, true, true, false]);
}

#[test]
fn clock_set_back_finds_last_windows() {
    let mut burst = Burst::new(Quota::new(1, 60).unwrap());
    let admitted = [13, 12, 11, 12].map(|window| burst.request(0, 1_000_000_000 + window * 60_000));
    assert_eq!(admitted, [true, true, true, false]);
}

#[test]
fn concurrent_counts_are_unique() {
    let (threads, requests) = (8, 500);
    let table = WindowTable::default();
    let window = Quota::default().window(&name(0), Timestamp::from_unix_ms(0));
    let count = || (0..requests).map(|_| block_on(table.count(&window)).unwrap()).collect::<Vec<_>>();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let each: BTreeSet<_> = counts.iter().copied().collect();
    assert_eq!(counts.len(), each.len(), "a number was given twice");
    assert!(each.into_iter().eq(1..=threads * requests));
}

#[test]
fn concurrent_requests_are_admitted_up_to_limit() {
    let table = WindowTable::default();
    let now = Timestamp::from_unix_ms(0);
    let window = Quota::new(100, 60).unwrap().window(&name(0), now);
    let admitted =
        || (0..50).filter(|_| window.admit(block_on(table.count(&window)).unwrap(), now).is_ok()).count();
    let admitted: usize = std::thread::scope(|scope| {
        let running: Vec<_> = (0..8).map(|_| scope.spawn(admitted)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

/// Workspaces that share one table, and the number of requests admitted in each window.
struct Burst {
    quota: Quota,
    table: WindowTable,
    admitted: BTreeMap<(WorkspaceId, u64), u32>,
}

impl Burst {
    fn new(quota: Quota) -> Self {
        Self { quota, table: WindowTable::default(), admitted: BTreeMap::new() }
    }

    /// Makes a request whose clock reads `ms`, and returns `true` if it is admitted.
    fn request(&mut self, workspace: usize, ms: u64) -> bool {
        let now = Timestamp::from_unix_ms(ms);
        let window = self.quota.window(&name(workspace), now);
        let count = block_on(self.table.count(&window)).expect("a table in memory does not fail");
        let admitted = window.admit(count, now).is_ok();
        *self.admitted.entry((name(workspace), window.number())).or_default() += u32::from(admitted);
        admitted
    }

    /// Makes requests of one workspace. Each step has the time since the previous request and the delay of
    /// the count. Returns the final time.
    fn run(&mut self, mut clock: u64, steps: &[(u64, u64)]) -> u64 {
        for (gap, late) in steps {
            clock += gap;
            self.request(0, clock - late);
        }
        clock
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (window, admitted) in &self.admitted {
            prop_assert!(*admitted <= self.quota.limit(), "{admitted} in {window:?}, {:?}", self.quota);
        }
        Ok(())
    }
}

fn name(workspace: usize) -> WorkspaceId {
    format!("workspace-{workspace}").parse().expect("a name")
}

/// Generates small quotas, so that requests often reach the limit.
fn quota() -> impl Strategy<Value = Quota> {
    (1..6_u32, 1..4_u32).prop_map(|(limit, seconds)| Quota::new(limit, seconds).expect("a quota"))
}

/// Generates milliseconds between requests: mostly within one window, some into the next, a few after an idle
/// time.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..200_u64, 3 => 200..1_500_u64, 1 => 1_500..10_000_u64]
}

/// Generates clock jumps in milliseconds: a few seconds, or very many windows.
fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![-5_000..5_000_i64, -900_000_000..900_000_000_i64]
}

/// Generates the delay of a count in milliseconds: less than the shortest window.
fn jitter() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 1 => 0..999_u64]
}
