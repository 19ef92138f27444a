use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_middleware::{Coalesce, EmailHasher, VendorErrorKind};
use tokio::time::sleep;

use crate::scripted::{
    Told, Vendor, ada, ask, breaks, drop_at_each_ms, fails, finds, found, hangs, panics, query, settle, start,
};

const IDLE: &str = "Coalesce { in_flight: 0, .. }";

fn coalesce(vendor: &Arc<Vendor>) -> Arc<Coalesce> {
    Arc::new(Coalesce::new(vendor.clone(), EmailHasher::new([7; 32])))
}

#[tokio::test(start_paused = true)]
async fn lookups_of_one_person_at_one_time_are_one_ask() {
    let vendor = Vendor::that(finds("ada").after(100));
    let coalesce = coalesce(&vendor);
    let others = [start(&coalesce).await, start(&coalesce).await];
    sleep(Duration::from_millis(60)).await;
    let same_mailbox = coalesce.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!(Told::from(&same_mailbox), found("ada"));
    for other in others {
        assert_eq!(other.await.unwrap(), found("ada"));
    }
    assert_eq!(vendor.asks(), 1);
    assert_eq!(format!("{coalesce:?}"), IDLE);
}

#[tokio::test(start_paused = true)]
async fn another_person_is_another_ask_and_so_is_the_same_one_later() {
    let vendor = Vendor::that(finds("ada").after(100));
    let coalesce = coalesce(&vendor);
    let first = start(&coalesce).await;
    coalesce.find(&query("bob@gmail.com")).await.unwrap();
    first.await.unwrap();
    assert_eq!(vendor.asks(), 2);
    ask(&*coalesce).await;
    assert_eq!(vendor.asks(), 3);
}

#[tokio::test(start_paused = true)]
async fn if_the_asker_hangs_up_the_others_still_get_their_answer() {
    let vendor = Vendor::that(finds("ada").after(100));
    let coalesce = coalesce(&vendor);
    let asker = start(&coalesce).await;
    let others = [start(&coalesce).await, start(&coalesce).await];
    sleep(Duration::from_millis(50)).await;
    asker.abort();
    settle().await;
    for other in others {
        assert_eq!(other.await.unwrap(), found("ada"));
    }
    assert_eq!(vendor.asks(), 1);
}

#[tokio::test(start_paused = true)]
async fn if_all_hang_up_the_ask_is_dropped() {
    let vendor = Vendor::that(hangs());
    let coalesce = coalesce(&vendor);
    let lookups = [start(&coalesce).await, start(&coalesce).await];
    assert_eq!(
        (vendor.under_way(), format!("{coalesce:?}")),
        (1, "Coalesce { in_flight: 1, .. }".to_owned())
    );
    for lookup in lookups {
        lookup.abort();
        assert!(lookup.await.is_err());
    }
    assert_eq!((vendor.under_way(), format!("{coalesce:?}")), (0, IDLE.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_and_keeps_its_kind_and_its_words() {
    let vendor = Vendor::that_first([fails(VendorErrorKind::KeyRefused).after(100)], breaks().after(100));
    let coalesce = coalesce(&vendor);
    let (first, second) = (start(&coalesce).await, start(&coalesce).await);
    assert_eq!(first.await.unwrap(), Told::Fault(VendorErrorKind::KeyRefused));
    assert_eq!(second.await.unwrap(), Told::Fault(VendorErrorKind::KeyRefused));
    assert_eq!(vendor.asks(), 1);
    assert_eq!(ask(&*coalesce).await, Told::Error("it broke".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_all_and_leaves_nobody_waiting() {
    let vendor = Vendor::that_first([panics().after(100)], finds("ada"));
    let coalesce = coalesce(&vendor);
    let (first, second) = (start(&coalesce).await, start(&coalesce).await);
    assert_eq!(first.await.unwrap(), Told::Error("the resolver panicked".to_owned()));
    assert_eq!(second.await.unwrap(), Told::Error("the resolver panicked".to_owned()));
    assert_eq!(ask(&*coalesce).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_was_never_begun_leaves_nothing() {
    let vendor = Vendor::that(finds("ada"));
    let coalesce = coalesce(&vendor);
    drop(coalesce.find(&ada()));
    assert_eq!(format!("{coalesce:?}"), IDLE);
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(finds("ada").after(20));
    let coalesce = coalesce(&vendor);
    let check = |ms| assert_eq!((vendor.under_way(), &*format!("{coalesce:?}")), (0, IDLE), "{ms}");
    drop_at_each_ms(&*coalesce, 25, check).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_every_lookup_is_answered_and_nothing_is_left() {
    let vendor = Vendor::that(finds("ada").after(1));
    let coalesce = coalesce(&vendor);
    for round in 0..200 {
        let lookups: Vec<_> = (0..16)
            .map(|_| {
                let coalesce = coalesce.clone();
                tokio::spawn(async move { ask(&*coalesce).await })
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
        assert_eq!((vendor.under_way(), &*format!("{coalesce:?}")), (0, IDLE));
    }
}
