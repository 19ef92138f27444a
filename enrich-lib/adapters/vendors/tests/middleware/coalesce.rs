//! Concurrent lookups of one address, which share one call.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use enrich_vendors::middleware::{Coalesce, Deadline, EmailHasher, ResolverStack, VendorPolicy};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use proptest::prelude::*;
use tokio::time::sleep;

use crate::scripted::{
    LookupResult, Vendor, ada, fails, fails_untyped, finds, found, hangs, lock, look_up, no_match, opted_out,
    panics, paused_runtime, query, query_of, settle, start,
};

const IDLE: &str = "Coalesce { in_flight: 0, .. }";

fn coalesce(vendor: &Arc<Vendor>) -> Arc<Coalesce> {
    Arc::new(Coalesce::new(vendor.clone(), EmailHasher::new([7; 16])))
}

#[tokio::test(start_paused = true)]
async fn concurrent_lookups_of_one_address_share_one_call_and_its_result() {
    let other_error = |text: &str| LookupResult::OtherError(text.to_owned());
    for (behavior, result) in [
        (finds("ada"), found("ada")),
        (no_match(), LookupResult::NoMatch),
        (fails(VendorErrorKind::KeyRejected), LookupResult::VendorError(VendorErrorKind::KeyRejected)),
        (fails_untyped(), other_error("it broke")),
        (panics(), other_error("the resolver panicked")),
    ] {
        let vendor = Vendor::scripted([behavior.after(100)], finds("ada-now"));
        let coalesce = coalesce(&vendor);
        let others = [start(&coalesce).await, start(&coalesce).await];
        sleep(Duration::from_millis(60)).await;
        let in_upper_case = coalesce.find(&query("ADA.Marlowe@Gmail.com")).await;
        assert_eq!(LookupResult::from(&in_upper_case), result);
        for other in others {
            assert_eq!(other.await.unwrap(), result);
        }
        assert_eq!((vendor.calls(), &*format!("{coalesce:?}")), (1, IDLE), "{result:?}");
        assert_eq!(look_up(&*coalesce).await, found("ada-now"), "after {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_addresses_are_separate_calls() {
    let vendor = Vendor::new(finds("ada").after(100));
    let coalesce = coalesce(&vendor);
    let first = start(&coalesce).await;
    for other in ["bob@gmail.com", "adamarlowe@gmail.com", "ada.marlowe+shop@gmail.com"] {
        coalesce.find(&query(other)).await.unwrap();
    }
    assert_eq!((first.await.unwrap(), vendor.calls()), (found("ada"), 4));
}

#[tokio::test(start_paused = true)]
async fn call_ends_with_its_last_lookup() {
    let vendor = Vendor::new(hangs());
    let coalesce = coalesce(&vendor);
    let lookups = [start(&coalesce).await, start(&coalesce).await, start(&coalesce).await];
    for (lookup, in_flight) in lookups.iter().zip([1, 1, 0]) {
        assert_eq!(format!("{coalesce:?}"), "Coalesce { in_flight: 1, .. }");
        lookup.abort();
        settle().await;
        assert_eq!((vendor.in_flight(), vendor.calls()), (in_flight, 1));
    }
    assert_eq!(format!("{coalesce:?}"), IDLE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn completes_all_lookups_on_several_threads() {
    let vendor = Vendor::new(finds("ada").after(1));
    let coalesce = coalesce(&vendor);
    for round in 0..200 {
        let lookups: Vec<_> = (0..16)
            .map(|_| {
                let coalesce = coalesce.clone();
                tokio::spawn(async move { look_up(&*coalesce).await })
            })
            .collect();
        for (i, lookup) in lookups.into_iter().enumerate() {
            if (i + round) % 3 == 0 {
                lookup.abort();
                let _ = lookup.await;
            } else {
                assert_eq!(lookup.await.unwrap(), found("ada"));
            }
        }
        assert_eq!((vendor.in_flight(), &*format!("{coalesce:?}")), (0, IDLE));
    }
}

/// A vendor at which another lookup of the same person starts while its first call is dropped.
struct Relay {
    vendor: Arc<Vendor>,
    coalesce: OnceLock<Weak<Coalesce>>,
    started: Mutex<Option<Lookup>>,
}

type Lookup = BoxFuture<'static, Result<Answer, PortError>>;

struct Call<'a>(&'a Relay);

#[async_trait]
impl Resolver for Relay {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let _call = Call(self);
        self.vendor.find(query).await
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Self(Relay { vendor, coalesce, started }) = self;
        if vendor.calls() == 1
            && let Some(coalesce) = coalesce.get().and_then(Weak::upgrade)
        {
            let mut lookup: Lookup = Box::pin(async move { coalesce.find(&ada()).await });
            assert!(lookup.as_mut().now_or_never().is_none(), "it waits for the vendor");
            *lock(started) = Some(lookup);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_a_dropped_call_leaves_the_next_one_in_flight() {
    let vendor = Vendor::new(finds("ada").after(100));
    let relay = Relay { vendor: vendor.clone(), coalesce: OnceLock::new(), started: Mutex::default() };
    let relay = Arc::new(relay);
    let coalesce = Arc::new(Coalesce::new(relay.clone(), EmailHasher::new([7; 16])));
    relay.coalesce.set(Arc::downgrade(&coalesce)).unwrap();
    let first = start(&coalesce).await;
    first.abort();
    assert!(first.await.is_err());
    let second = lock(&relay.started).take().expect("started by the drop");
    let third = start(&coalesce).await;
    assert_eq!(LookupResult::from(&second.await), found("ada"));
    assert_eq!(third.await.unwrap(), found("ada"));
    assert_eq!(vendor.calls(), 2, "the third lookup shares the call of the second");
    assert_eq!(format!("{coalesce:?}"), IDLE);
}

proptest! {
    /// The flood ends with the address of the other workspace, whose queues have free places.
    #[test]
    fn flood_of_a_workspace_fails_no_lookup_of_another(
        flood in 0..40_usize,
        queue_max in 1..30_usize,
        start_ms in 0..4_000_u64,
    ) {
        let mut policy = VendorPolicy::default();
        (policy.concurrency, policy.queue_max) = (1, queue_max);
        let resolver = ResolverStack::new(Deadline::BUDGET, opted_out(&[]))
            .vendor("alpha", Vendor::new(no_match().after(300)), VendorPolicy::default())
            .vendor("beta", Vendor::new(finds("ada").after(700)), policy)
            .build([7; 32]);
        let mut floods = (0..flood)
            .map(|number| query_of("flood", &format!("person{number}@gmail.com")))
            .collect::<Vec<_>>();
        floods.push(query_of("flood", ada().email.as_str()));
        let lookup = async {
            sleep(Duration::from_millis(start_ms)).await;
            look_up(&*resolver).await
        };
        let lookups = join(join_all(floods.iter().map(|query| resolver.find(query))), lookup);
        prop_assert_eq!(paused_runtime().block_on(lookups).1, found("ada"));
    }
}
