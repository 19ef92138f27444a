//! All middleware combined in the recommended order.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{
    BreakerState, CachePolicy, CircuitBreakerPolicy, ResolverStack, StackMonitor, VendorPolicy,
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::scripted::{
    LookupResult, OptOutsBy, Vendor, fails, finds, found, hangs, look_up, look_up_person, look_up_timed,
    no_match, opted_out, query,
};

const BUDGET: Duration = Duration::from_secs(10);

fn policy() -> VendorPolicy {
    let mut policy = VendorPolicy::default();
    policy.timeout = Duration::from_secs(3);
    policy
}

fn stack(of: &[Arc<Vendor>], policy: VendorPolicy, cache: Option<usize>) -> Arc<dyn Resolver> {
    let mut stack = ResolverStack::new(BUDGET, opted_out(&[]));
    for (name, vendor) in ["alpha", "beta", "gamma"].into_iter().zip(of) {
        stack = stack.vendor(name, vendor.clone(), policy);
    }
    if let Some(entries_max) = cache.and_then(NonZeroUsize::new) {
        stack = stack.cache(CachePolicy { entries_max, found_ttl: BUDGET, not_found_ttl: BUDGET });
    }
    stack.build([7; 32])
}

/// Each of three sources is local or a vendor.
#[tokio::test(start_paused = true)]
async fn sources_are_queried_in_their_order() {
    let names = ["alpha", "beta", "gamma"];
    for (locals, first) in (0..8).flat_map(|locals| (0..=3).map(move |first| (locals, first))) {
        let mut stack = ResolverStack::new(BUDGET, opted_out(&[]));
        let sources = [0, 1, 2].map(|n| Vendor::new(if n < first { no_match() } else { finds(names[n]) }));
        for (n, source) in sources.iter().cloned().enumerate() {
            let is_local = (locals >> n) & 1 == 1;
            stack = if is_local {
                stack.local(names[n], source)
            } else {
                stack.vendor(names[n], source, policy())
            };
        }
        let expected = names.get(first).map_or(LookupResult::NoMatch, |name| found(name));
        assert_eq!(look_up(&*stack.build([7; 32])).await, expected, "{locals:b}, {first}");
        let calls = [0, 1, 2].map(|n| usize::from(n <= first));
        assert_eq!(sources.map(|source| source.calls()), calls, "{locals:b}, {first}");
    }
}

/// The timeout of the vendors is longer than their share of the deadline.
#[tokio::test(start_paused = true)]
async fn circuit_breakers_exclude_each_vendor_that_hangs() {
    let of = [hangs(), hangs(), hangs()].map(Vendor::new);
    let resolver = stack(&of, VendorPolicy::default(), None);
    for number in 0..CircuitBreakerPolicy::default().calls_min {
        assert!(matches!(look_up_person(&*resolver, number).await, LookupResult::OtherError(_)));
    }
    assert_eq!(look_up_timed(&*resolver).await.1, 0);
}

/// Runs concurrent lookups, and returns their results and durations.
async fn burst(lookups: usize, resolver: Arc<dyn Resolver>) -> Vec<(LookupResult, Duration)> {
    let look_up = async |n| {
        let (query, started) = (query(&format!("ada{n}@posteo.net")), Instant::now());
        (LookupResult::from(&resolver.find(&query).await), started.elapsed())
    };
    join_all((0..lookups).map(look_up)).await
}

#[tokio::test(start_paused = true)]
async fn burst_on_hanging_vendor_stays_within_budget() {
    for policy in [policy(), VendorPolicy::default()] {
        let of = [hangs(), hangs(), finds("ada")].map(Vendor::new);
        for (result, took) in burst(200, stack(&of, policy, None)).await {
            assert_eq!(result, found("ada"));
            assert!(took < BUDGET, "{took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn burst_waits_half_of_its_share_for_a_slow_vendor() {
    let of = [no_match().after(3_000), finds("ada")].map(Vendor::new);
    for (result, took) in burst(200, stack(&of, VendorPolicy::default(), None)).await {
        assert_eq!(result, found("ada"));
        // The share is 4.95 s. The lookups that do not wait take 3 s.
        assert!(took <= Duration::from_secs(3), "{took:?}");
    }
}

/// The second lookup waits for both vendors, so that the waterfall ends it.
#[tokio::test(start_paused = true)]
async fn error_of_a_lookup_that_waits_names_the_hanging_vendor_before_deadline() {
    let of = [no_match().after(2_400), hangs()].map(Vendor::new);
    let mut policy = VendorPolicy::default();
    policy.concurrency = 1;
    for (result, took) in burst(2, stack(&of, policy, None)).await {
        let LookupResult::OtherError(text) = result else { panic!("{result:?}") };
        assert!(text.contains("beta"), "{text}");
        assert!(took < BUDGET, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stored_results_hide_no_change_of_a_local_source() {
    for (reply, stored) in [(finds("ada"), found("ada")), (no_match(), LookupResult::NoMatch)] {
        let (local, vendor) = (Vendor::new(no_match()), Vendor::new(reply));
        let cache = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: BUDGET, not_found_ttl: BUDGET };
        let stack = ResolverStack::new(BUDGET, Arc::new(OptOutsBy(|_: &Email| Ok(false))));
        let stack = stack.local("people", local.clone()).vendor("alpha", vendor.clone(), policy());
        let resolver = stack.cache(cache).build([7; 32]);
        assert_eq!(look_up(&*resolver).await, stored);
        local.set_behavior(finds("imported"));
        assert_eq!(look_up(&*resolver).await, found("imported"));
        local.set_behavior(fails(VendorErrorKind::Unavailable));
        let result = look_up(&*resolver).await;
        if stored == LookupResult::NoMatch {
            // The person can be in the source that failed.
            assert!(
                matches!(result, LookupResult::VendorError(_) | LookupResult::OtherError(_)),
                "{result:?}"
            );
        } else {
            assert_eq!(result, stored);
        }
        assert_eq!(vendor.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn opt_out_and_its_withdrawal_apply_to_cached_answers() {
    static HAS_OPTED_OUT: AtomicBool = AtomicBool::new(false);
    let opt_outs = Arc::new(OptOutsBy(|_: &Email| Ok(HAS_OPTED_OUT.load(Ordering::Relaxed))));
    let vendor = Vendor::new(finds("ada"));
    let cache = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: BUDGET, not_found_ttl: BUDGET };
    let stack = ResolverStack::new(BUDGET, opt_outs).vendor("alpha", vendor.clone(), policy());
    let resolver = stack.cache(cache).build([7; 32]);
    for has_opted_out in [true, false, true, false] {
        let result = if has_opted_out { LookupResult::NoMatch } else { found("ada") };
        HAS_OPTED_OUT.store(has_opted_out, Ordering::Relaxed);
        assert_eq!(look_up(&*resolver).await, result);
    }
    assert_eq!(vendor.calls(), 1);
}

/// A reload builds the stack again while lookups of the old one wait for the vendor.
#[tokio::test(start_paused = true)]
async fn unchanged_vendor_keeps_its_permits_and_circuit_breaker_in_a_new_stack() {
    let mut policy = policy();
    (policy.concurrency, policy.queue_max) = (1, 0);
    let vendor = Vendor::new(hangs());
    let stack = || ResolverStack::new(BUDGET, opted_out(&[])).vendor("alpha", vendor.clone(), policy);
    let is_open = |monitor: &StackMonitor| monitor.breakers().all(|(_, state)| state == BreakerState::Open);
    let (old, monitor) = stack().build_with_monitor([7; 32]);
    let in_flight = tokio::spawn(async move { look_up(&*old).await });
    sleep(Duration::from_millis(1)).await;
    let (new, _) = stack().continuing(&monitor, |_| true).build_with_monitor([8; 32]);
    let (changed, _) = stack().continuing(&monitor, |_| false).build_with_monitor([8; 32]);
    for next in [&new, &changed] {
        assert_eq!(look_up_timed(&**next).await.1, 0, "the permit of the old stack is in use");
    }
    in_flight.await.unwrap();
    for number in 1..policy.breaker.calls_min {
        look_up_person(&*new, number).await;
    }
    assert!(is_open(&monitor));
    let continued = stack().continuing(&monitor, |_| true).build_with_monitor([9; 32]).1;
    let changed = stack().continuing(&monitor, |_| false).build_with_monitor([9; 32]).1;
    policy.concurrency = 2;
    let other = ResolverStack::new(BUDGET, opted_out(&[])).vendor("alpha", vendor.clone(), policy);
    let limited = other.continuing(&monitor, |_| true).build_with_monitor([9; 32]).1;
    assert_eq!([continued, changed, limited].map(|monitor| is_open(&monitor)), [true, false, false]);
}
