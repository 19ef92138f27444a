//! Neither the time nor the result of a lookup reveals that the person opted out.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use enrich_vendors::middleware::{CachePolicy, Deadline, ResolverStack, VendorPolicy};
use futures_util::future::{join, join_all};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::time::{Instant, sleep};

use crate::scripted::{
    LookupResult, OptOutsBy, Vendor, fails, finds, look_up_person, no_match, opted_out, paused_runtime, query,
};

const OPTED_OUT: &str = "bea@company.com";

/// Creates a stack with a list of one opt-out.
fn stack() -> ResolverStack {
    ResolverStack::new(Deadline::BUDGET, opted_out(&[OPTED_OUT]))
}

fn with_vendor(vendor: &Arc<Vendor>) -> Arc<dyn Resolver> {
    let mut policy = VendorPolicy::default();
    policy.tries_max = 1;
    stack().vendor("acme", vendor.clone(), policy).build([7; 32])
}

/// Returns the duration of a lookup without a match, in milliseconds.
async fn ms(resolver: &dyn Resolver, email: &str) -> u64 {
    let started = Instant::now();
    assert_eq!(LookupResult::from(&resolver.find(&query(email)).await), LookupResult::NoMatch);
    started.elapsed().as_millis() as u64
}

#[tokio::test(start_paused = true)]
async fn opted_out_person_takes_as_long_as_unknown_people() {
    let durations = [40, 40, 80, 120];
    let vendor = Vendor::scripted(durations.map(|ms| no_match().after(ms)), no_match());
    let resolver = with_vendor(&vendor);
    for (number, expected) in durations.into_iter().enumerate() {
        assert_eq!(ms(&*resolver, &format!("unknown.{number}@company.com")).await, expected);
    }
    let mut counts = BTreeMap::new();
    for _ in 0..400 {
        *counts.entry(ms(&*resolver, OPTED_OUT).await).or_insert(0) += 1;
    }
    assert_eq!(vendor.calls(), durations.len(), "no request for the person who opted out");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [40, 80, 120]);
    // Of 400, with a standard deviation of at most 10.
    assert!((150..250).contains(&counts[&40]), "{counts:?}");
    assert!((60..140).contains(&counts[&80]) && (60..140).contains(&counts[&120]), "{counts:?}");
}

/// Returns the result of a lookup and its duration in milliseconds, with one permit, a queue of one place, and
/// a breaker that opens after 10 failures, for 30 s.
async fn under_load(email: &str, failures: usize, later: Duration, others: usize) -> (LookupResult, u64) {
    let vendor = Vendor::new(no_match().after(400));
    let mut policy = VendorPolicy::default();
    (policy.concurrency, policy.queue_max, policy.tries_max) = (1, 1, 1);
    let resolver = stack().vendor("acme", vendor.clone(), policy).build([7; 32]);
    ms(&*resolver, "first@company.com").await;
    vendor.set_behavior(fails(VendorErrorKind::Unavailable));
    for number in 0..failures {
        look_up_person(&*resolver, number).await;
    }
    vendor.set_behavior(no_match().after(400));
    sleep(later).await;
    let before = (0..others).map(|number| query(&format!("other.{number}@company.com"))).collect::<Vec<_>>();
    let started = Instant::now();
    let lookup = async {
        let found = resolver.find(&query(email)).await;
        (LookupResult::from(&found), started.elapsed().as_millis() as u64)
    };
    join(join_all(before.iter().map(|query| resolver.find(query))), lookup).await.1
}

#[tokio::test(start_paused = true)]
async fn opted_out_person_is_refused_and_waits_like_an_unknown_person() {
    use LookupResult::NoMatch;
    let skipped =
        |reason: VendorErrorKind| LookupResult::OtherError(format!("1 of 1 vendors failed; acme: {reason}"));
    let after_the_pause = Duration::from_secs(30);
    for (failures, later, others, expected) in [
        (0, Duration::ZERO, 0, (NoMatch, 400)),
        (0, Duration::ZERO, 1, (NoMatch, 800)),
        (0, Duration::ZERO, 2, (skipped(VendorErrorKind::QueueFull), 0)),
        (20, Duration::ZERO, 0, (skipped(VendorErrorKind::CircuitOpen), 0)),
        (20, after_the_pause, 0, (NoMatch, 400)),
        (20, after_the_pause, 1, (NoMatch, 800)),
    ] {
        for email in ["unknown@company.com", OPTED_OUT] {
            let found = under_load(email, failures, later, others).await;
            assert_eq!(found, expected, "{email}, {failures} failures, {others} others");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_recent_answers_without_a_match_count() {
    let vendor = Vendor::new(no_match().after(500));
    let resolver = with_vendor(&vendor);
    ms(&*resolver, "unknown@company.com").await;
    vendor.set_behavior(no_match().after(80));
    for number in 0..64 {
        ms(&*resolver, &format!("unknown.{number}@company.com")).await;
    }
    for other in [finds("ada").after(5), fails(VendorErrorKind::RequestRejected).after(7)] {
        vendor.set_behavior(other);
        let _ = resolver.find(&query("ada@company.com")).await;
    }
    for _ in 0..100 {
        assert_eq!(ms(&*resolver, OPTED_OUT).await, 80);
    }
}

#[tokio::test(start_paused = true)]
async fn takes_100_ms_before_the_first_answer_of_a_vendor() {
    let vendor = Vendor::new(finds("bea"));
    assert_eq!(ms(&*with_vendor(&vendor), OPTED_OUT).await, 100);
    assert_eq!(vendor.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn takes_no_time_without_vendors() {
    let directory = Vendor::new(finds("bea"));
    let resolver = stack().local("people", directory.clone()).build([7; 32]);
    assert_eq!((ms(&*resolver, OPTED_OUT).await, directory.calls()), (0, 0));
}

/// A step of a sequence. The people are numbers, and the first one can opt out.
#[derive(Clone, Copy, Debug)]
enum Step {
    LookUp(usize),
    Sleep(Duration),
    OptOut,
    /// After all cached results have expired, because a cached decoy is a miss for a person who withdrew.
    Withdraw,
}

const TTL: Duration = Duration::from_secs(60);

/// Returns the answers and durations of two overlapping lookups for each [`Step::LookUp`].
async fn replies(can_opt_out: bool, entries_max: usize, steps: &[Step]) -> Vec<[(Answer, Duration); 2]> {
    let entries_max = NonZeroUsize::new(entries_max).expect("not zero");
    let cache = CachePolicy { entries_max, found_ttl: TTL, not_found_ttl: TTL };
    let has_opted_out = Arc::<AtomicBool>::default();
    let is_listed = has_opted_out.clone();
    let opt_outs =
        OptOutsBy(move |email: &Email| Ok(email.as_str() == OPTED_OUT && is_listed.load(Ordering::Relaxed)));
    // As long as a decoy before the vendor's first answer.
    let vendor = Vendor::new(no_match().after(100));
    let stack = ResolverStack::new(Deadline::BUDGET, Arc::new(opt_outs)).cache(cache);
    let resolver = stack.vendor("acme", vendor, VendorPolicy::default()).build([7; 32]);
    let mut replies = Vec::new();
    for &step in steps {
        match step {
            Step::LookUp(person) => {
                let email = [OPTED_OUT, "a@company.com", "b@company.com", "c@company.com"][person];
                let lookup = async |pause| {
                    sleep(Duration::from_millis(pause)).await;
                    let started = Instant::now();
                    (resolver.find(&query(email)).await.expect("an answer"), started.elapsed())
                };
                replies.push(join(lookup(0), lookup(50)).await.into());
            }
            Step::Sleep(pause) => sleep(pause).await,
            Step::OptOut => has_opted_out.store(can_opt_out, Ordering::Relaxed),
            Step::Withdraw => {
                sleep(TTL).await;
                has_opted_out.store(false, Ordering::Relaxed);
            }
        }
    }
    replies
}

proptest! {
    #[test]
    fn repeated_and_concurrent_lookups_take_as_long_as_those_of_an_unknown_person(
        entries_max in 1..4_usize,
        steps in vec(
            prop_oneof![
                8 => (0..4_usize).prop_map(Step::LookUp),
                2 => select(vec![TTL / 2, TTL - Duration::from_millis(100), TTL]).prop_map(Step::Sleep),
                1 => Just(Step::OptOut),
                1 => Just(Step::Withdraw),
            ],
            1..40,
        ),
    ) {
        let replies =
            [true, false].map(|can| paused_runtime().block_on(replies(can, entries_max, &steps)));
        prop_assert_eq!(&replies[0], &replies[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn local_source_is_read_for_a_person_who_opted_out() {
    let ttl = Duration::from_secs(60);
    let (local, vendor) = (Vendor::new(no_match().after(7)), Vendor::new(no_match().after(40)));
    let cache = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: ttl, not_found_ttl: ttl };
    let stack = stack().local("people", local.clone()).local("crm", Vendor::new(no_match().after(3))).vendor(
        "acme",
        vendor.clone(),
        VendorPolicy::default(),
    );
    let resolver = stack.cache(cache).build([7; 32]);
    let in_local = "bea+local@company.com";
    for (email, has_local) in [("unknown@company.com", false), (OPTED_OUT, false), (in_local, true)] {
        local.set_behavior(if has_local { finds("bea").after(7) } else { no_match().after(7) });
        for (is_cached, expected) in [(false, 50), (true, 10)] {
            let started = Instant::now();
            let answer = resolver.find(&query(email)).await.unwrap();
            assert_eq!((answer.profile, answer.source, answer.is_cached), (None, None, is_cached), "{email}");
            assert_eq!(started.elapsed().as_millis(), expected, "{email}");
        }
    }
    assert_eq!(vendor.calls(), 1);
}
