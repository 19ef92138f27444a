//! The rate-limit counters in memory.

use std::sync::Arc;

use enrich_interleavings::{START, explore, workspace};
use enrich_lib::memory::WindowTable;
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn window(n: u64) -> Window {
    let window = Quota::new(3, 60).unwrap().window(&workspace(), START);
    (0..n).fold(window, |window, _| Quota::new(3, 60).unwrap().window(&workspace(), window.closes_at()))
}

/// Counts requests on one thread per entry of `windows`, in the order of the entry. Returns all counts,
/// sorted.
fn counted(windows: &'static [&'static [u64]]) -> Vec<(u64, u64)> {
    let table = Arc::new(WindowTable::default());
    let threads: Vec<_> = windows
        .iter()
        .map(|windows| {
            let table = table.clone();
            thread::spawn(move || {
                let count = |n: &u64| (*n, block_on(table.count(&window(*n))).unwrap());
                windows.iter().map(count).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut counts: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    counts.sort_unstable();
    counts
}

/// A request whose time was read before the edge may be counted after requests of the next window.
#[test]
fn adjacent_windows_return_each_count_once() {
    explore(SCHEDULES, || {
        let counts = counted(&[&[0, 1], &[0, 1], &[1, 1], &[0, 0]]);
        assert_eq!(counts, [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3), (1, 4)]);
    });
}
