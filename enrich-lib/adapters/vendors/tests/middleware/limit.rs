//! The limit on concurrent lookups: random lookups that wait, give up and end, compared with a model.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{ConcurrencyLimit, Permits};
use futures_util::FutureExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::time::timeout;

use crate::scripted::{
    LookupResult, Vendor, finds, found, hangs, look_up, look_up_timed, query_of, settle, start, start_for,
};

const WAIT_MAX: Duration = Duration::from_secs(3_600);

fn limit(vendor: &Arc<Vendor>, permits: usize, queue: usize) -> Arc<ConcurrencyLimit> {
    Arc::new(ConcurrencyLimit::new(vendor.clone(), Permits::new(permits, queue), WAIT_MAX))
}

fn assert_state(limit: &ConcurrencyLimit, free: usize, waiting: usize) {
    let state = format!("{limit:?}");
    assert!(state.contains(&format!("Permits {{ free: {free}, waiting: {waiting} }}")), "{state}");
}

#[tokio::test(start_paused = true)]
async fn accepts_any_number_of_permits() {
    assert_eq!(look_up(&*limit(&Vendor::new(finds("ada")), usize::MAX, usize::MAX)).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn fails_lookup_that_waits_too_long() {
    let vendor = Vendor::new(hangs());
    let limit =
        Arc::new(ConcurrencyLimit::new(vendor.clone(), Permits::new(1, 10), Duration::from_millis(200)));
    let first = start(&limit).await;
    assert_eq!(look_up_timed(&*limit).await, (LookupResult::VendorError(VendorErrorKind::QueueTimeout), 200));
    first.abort();
    assert!(first.await.is_err());
    assert_state(&limit, 1, 0);
    assert_eq!(vendor.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn permit_of_dropped_lookup_goes_to_next_waiter() {
    let vendor = Vendor::new(hangs());
    let limit = limit(&vendor, 1, 2);
    let first = start(&limit).await;
    // Polled manually, so that it does not run between the grant and the drop.
    let query = query_of("demo", "ada.marlowe@gmail.com");
    let mut second = limit.find(&query);
    assert!(timeout(Duration::ZERO, &mut second).await.is_err());
    let third = start(&limit).await;
    vendor.set_behavior(finds("ada"));
    first.abort();
    settle().await;
    drop(second);
    assert_eq!(third.await.unwrap(), found("ada"));
    assert_state(&limit, 1, 0);
}

/// A second implementation. Lookups are numbered.
#[derive(Default)]
struct Model {
    permits: usize,
    queue_max: usize,
    running: Vec<usize>,
    /// The lookups that wait, with their workspaces, in the order of their starts.
    waiting: Vec<(usize, &'static str)>,
    /// The workspaces with waiting lookups, in the order in which they get permits.
    turns: VecDeque<&'static str>,
    /// The workspace of each permit that was granted.
    granted: Vec<&'static str>,
}

impl Model {
    /// Starts a lookup. Returns `false` if the queue of its workspace is full.
    fn start(&mut self, lookup: usize, workspace: &'static str) -> bool {
        let queued = self.waiting.iter().filter(|(_, other)| *other == workspace).count();
        if self.running.len() == self.permits && queued == self.queue_max {
            return false;
        }
        self.waiting.push((lookup, workspace));
        if queued == 0 {
            self.turns.push_back(workspace);
        }
        self.grant();
        true
    }

    fn end(&mut self, lookup: usize) {
        self.running.retain(|other| *other != lookup);
        if let Some(index) = self.waiting.iter().position(|(other, _)| *other == lookup) {
            self.dequeue(index);
        }
        self.grant();
    }

    fn grant(&mut self) {
        if self.running.len() < self.permits
            && let Some(next) = self.turns.front()
            && let Some(index) = self.waiting.iter().position(|(_, workspace)| workspace == next)
        {
            let (lookup, workspace) = self.dequeue(index);
            self.running.push(lookup);
            self.granted.push(workspace);
        }
    }

    /// After the first lookup of a workspace, the turn of its next one comes last.
    fn dequeue(&mut self, index: usize) -> (usize, &'static str) {
        let (lookup, workspace) = self.waiting.remove(index);
        if self.waiting[..index].iter().all(|(_, other)| *other != workspace) {
            self.turns.retain(|other| *other != workspace);
            self.turns.extend(self.waiting.iter().map(|waiting| waiting.1).find(|other| *other == workspace));
        }
        (lookup, workspace)
    }
}

/// Lookups are dropped with and without a permit. Their ends are the same to the limit when they complete.
#[tokio::test(start_paused = true)]
async fn matches_model_for_random_lookups() {
    let mut rejected = 0;
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (permits, queue_max) = (rng.random_range(0..4), rng.random_range(0..4));
        let vendor = Vendor::new(hangs());
        let limit = limit(&vendor, permits, queue_max);
        let mut model = Model { permits: permits.max(1), queue_max, ..Model::default() };
        let mut lookups = Vec::new();
        for step in 0..60 {
            if lookups.is_empty() || rng.random_bool(0.6) {
                let workspace = *["a", "b", "c"].choose(&mut rng).unwrap();
                let lookup = start_for(&limit, workspace).await;
                if model.start(lookups.len(), workspace) {
                    lookups.push(lookup);
                } else {
                    let result = lookup.now_or_never().expect("no wait").unwrap();
                    assert_eq!(result, LookupResult::VendorError(VendorErrorKind::QueueFull));
                    rejected += 1;
                }
            } else {
                let ended = rng.random_range(0..lookups.len());
                lookups[ended].abort();
                settle().await;
                model.end(ended);
            }
            assert_eq!(vendor.called_workspaces(), model.granted, "seed {seed}, step {step}");
            assert_eq!(vendor.in_flight(), model.running.len(), "seed {seed}, step {step}");
            assert_state(&limit, model.permits - model.running.len(), model.waiting.len());
        }
    }
    assert!(rejected > 1_000, "{rejected}");
}
