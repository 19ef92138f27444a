//! All middleware combined in the recommended order.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_middleware::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, HashedOptOuts, Hedge,
    HedgeDelay, Limit, Permits, Retry, RetryPolicy, Suppress, VendorErrorKind, Waterfall,
};
use tokio::time::sleep;

use crate::scripted::{
    Told, Vendor, ask, ask_timed, drop_at_each_ms, fails, finds, found, hangs, knows_nobody, query_of,
};

const BUDGET: Duration = Duration::from_secs(10);

fn guarded(vendor: &Arc<Vendor>, seed: u64) -> Arc<dyn Resolver> {
    guarded_with(vendor, &Permits::new(50, 100), seed)
}

fn guarded_with(vendor: &Arc<Vendor>, permits: &Arc<Permits>, seed: u64) -> Arc<dyn Resolver> {
    let delay = HedgeDelay::Fixed(Duration::from_millis(1_500));
    let hedge = Arc::new(Hedge::where_asks_are_free(vendor.clone(), delay).within(permits.clone()));
    let retry = Arc::new(Retry::new(hedge, RetryPolicy::default(), seed));
    let deadline = Arc::new(Deadline::new(retry, RetryPolicy::default().budget));
    let breaker = Arc::new(Breaker::new(deadline, BreakerPolicy::default()));
    Arc::new(Limit::new(breaker, permits.clone(), Duration::from_secs(5)))
}

fn vendors(of: &[Arc<Vendor>; 3]) -> Waterfall {
    Waterfall::starting_with("alpha", guarded(&of[0], 1))
        .then("beta", guarded(&of[1], 2))
        .then("gamma", guarded(&of[2], 3))
        .within(BUDGET - Duration::from_millis(100))
}

fn whole(of: &[Arc<Vendor>; 3], entries_max: usize, ttl: Duration) -> Arc<dyn Resolver> {
    let hasher = EmailHasher::new([7; 32]);
    let entries_max = NonZeroUsize::new(entries_max).expect("not zero");
    let once = Arc::new(Coalesce::new(Arc::new(vendors(of)), hasher.clone()));
    let cache = CachePolicy { entries_max, found_ttl: ttl, not_found_ttl: ttl };
    let cached = Arc::new(Cache::new(once, hasher.clone(), cache));
    let suppressed = Arc::new(Suppress::new(cached, Arc::new(HashedOptOuts::new(hasher, []))));
    Arc::new(Deadline::new(suppressed, BUDGET))
}

#[tokio::test(start_paused = true)]
async fn a_first_vendor_that_hangs_costs_no_lookup_its_budget_and_is_kept_out_within_50_requests() {
    let of = [hangs(), knows_nobody().after(100), finds("ada").after(100)].map(Vendor::that);
    let resolver = Deadline::new(Arc::new(vendors(&of)), BUDGET);
    let (mut slow, mut last) = (0, 0);
    for _ in 0..50 {
        let (told, ms) = ask_timed(&resolver).await;
        assert_eq!(told, found("ada"));
        assert!(ms < 10_000, "{ms}");
        slow += usize::from(ms > 1_000);
        last = ms;
    }
    assert_eq!(last, 200, "the vendor that hangs is not asked any more");
    assert_eq!(slow, BreakerPolicy::default().calls_min);

    // The vendor is called again once it has recovered and the pause is over.
    of[0].now_does(finds("ada-first").after(50));
    sleep(BreakerPolicy::default().pause).await;
    assert_eq!(ask_timed(&resolver).await, (found("ada-first"), 50));
}

#[tokio::test(start_paused = true)]
async fn a_burst_on_a_vendor_that_hangs_stays_within_the_budget_too() {
    let of = [hangs(), hangs(), finds("ada")].map(Vendor::that);
    let resolver = Arc::new(Deadline::new(Arc::new(vendors(&of)), BUDGET));
    let lookups: Vec<_> = (0..200)
        .map(|_| {
            let resolver = resolver.clone();
            tokio::spawn(async move { ask_timed(&*resolver).await })
        })
        .collect();
    for lookup in lookups {
        let (told, ms) = lookup.await.unwrap();
        assert_eq!(told, found("ada"));
        assert!(ms < 10_000, "{ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn burst_of_one_workspace_does_not_starve_others() {
    let vendor = Vendor::that(finds("ada").after(1_000));
    let permits = Permits::new(8, 100);
    let waterfall = Waterfall::starting_with("alpha", guarded_with(&vendor, &permits, 1));
    let resolver = Arc::new(Deadline::new(Arc::new(waterfall.within(BUDGET)), BUDGET));
    // 108 tasks of one workspace, each of which starts its next lookup as soon as the previous one succeeds.
    let burst: Vec<_> = (0..108)
        .map(|_| {
            let resolver = resolver.clone();
            tokio::spawn(async move {
                loop {
                    let query = query_of("burst", "ada.marlowe@gmail.com");
                    if resolver.find(&query).await.is_err() {
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            })
        })
        .collect();
    sleep(BUDGET).await;
    for second in 0..100 {
        let (told, ms) = ask_timed(&*resolver).await;
        assert_eq!(told, found("ada"), "after {second} s of lookups beside the burst");
        assert!(ms < 3_000, "{ms}");
    }
    burst.into_iter().for_each(|lookups| lookups.abort());
}

#[tokio::test(start_paused = true)]
async fn when_every_vendor_hangs_the_error_names_them_before_the_whole_budget_ends() {
    let of = [hangs(), hangs(), hangs()].map(Vendor::that);
    let (told, ms) = ask_timed(&*whole(&of, 10, BUDGET)).await;
    let Told::Error(text) = told else { panic!("{told:?}") };
    assert!(["alpha", "beta", "gamma"].iter().all(|name| text.contains(name)), "{text}");
    assert!(ms < 10_000, "{ms}");
}

#[tokio::test(start_paused = true)]
async fn the_whole_stack_dropped_anywhere_leaves_nothing_and_works_again() {
    let slow_failure = || fails(VendorErrorKind::Unavailable).after(400);
    let of = [slow_failure(), hangs(), knows_nobody().after(300)].map(Vendor::that);
    let resolver = whole(&of, 1, Duration::ZERO);
    let steps = 60;
    for step in 0..steps {
        let at = Duration::from_millis(10_000 * step / steps);
        let _ = tokio::time::timeout(at, ask(&*resolver)).await;
        assert!(of.iter().all(|vendor| vendor.under_way() == 0), "{at:?}");
    }
    drop_at_each_ms(&*resolver, 5, |_| ()).await;
    for vendor in &of {
        vendor.now_does(finds("ada"));
    }
    sleep(BreakerPolicy::default().pause).await;
    for _ in 0..20 {
        assert_eq!(ask(&*resolver).await, found("ada"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_found_is_remembered() {
    let of = [knows_nobody(), finds("ada"), hangs()].map(Vendor::that);
    let resolver = whole(&of, 10, BUDGET);
    for _ in 0..5 {
        assert_eq!(ask(&*resolver).await, found("ada"));
    }
    assert_eq!(of.map(|vendor| vendor.asks()), [1, 1, 0]);
}
