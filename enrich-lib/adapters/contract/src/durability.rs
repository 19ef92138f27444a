//! Rules for the state of a durable store after a crash.

use std::sync::Arc;

use enrich_lib::credit::HoldOutcome::Granted;
use enrich_lib::key::ApiKey;
use enrich_lib::window::Quota;

use crate::fixture::{Fixture, Refused};
use crate::{Durable, START};

/// Generates the tests of the rules for crashes. `$open` returns a fresh store (`Arc<impl Durable>`).
#[macro_export]
macro_rules! durability_contract {
    ($($open:tt)*) => {
        $crate::rules! { durability, ($($open)*),
            spend_survives_a_crash
            grant_survives_a_crash
            hold_ends_with_a_crash
            keys_and_revocations_survive_a_crash
        }
    };
}

pub async fn spend_survives_a_crash<S: Durable>(store: Arc<S>) {
    let mut fixture = Fixture::open(store, 10).await;
    for n in 0..3 {
        let hold = fixture.place(n, 2).await;
        assert_eq!(fixture.spend(&hold, 1).await, Ok(()));
        fixture = crash(fixture).await;
        assert_eq!(fixture.totals().await, (9 - u64::from(n), 0, u64::from(n) + 1));
        assert_eq!(fixture.spend(&hold, 1).await, Ok(()), "a repeated spend finds its first");
        assert_eq!(fixture.spend(&hold, 2).await, Err(Refused));
    }
}

pub async fn grant_survives_a_crash<S: Durable>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    fixture.store.grant(&fixture.workspace, 5).await; // without a tick, so that the node has not seen it
    let fixture = crash(fixture).await;
    assert_eq!(fixture.totals().await, (15, 0, 0));
}

pub async fn hold_ends_with_a_crash<S: Durable>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let lost = fixture.place(1, 10).await;
    let fixture = crash(fixture).await;
    // If nodes share the store, the credits become available only when the hold expires.
    fixture.tick(START + lost.ttl).await;
    assert_eq!(fixture.totals().await, (10, 0, 0));
    assert_eq!(fixture.spend(&lost, 10).await, Err(Refused));
    assert_eq!(fixture.hold(&fixture.lookup(2, 10)).await, Ok(Granted));
}

pub async fn keys_and_revocations_survive_a_crash<S: Durable>(store: Arc<S>) {
    let workspace = store.create_workspace(Quota::default(), 0).await;
    let (kept, revoked) = (ApiKey::generate(|| 1), ApiKey::generate(|| 2));
    store.create_key(&workspace, &kept).await;
    store.create_key(&workspace, &revoked).await;
    store.tick(START).await;
    store.revoke(&revoked).await;
    let store = store.crash().await;
    let found = |key: &ApiKey| {
        let (store, digest) = (store.clone(), key.digest());
        async move { store.keys().find(&digest).await.unwrap().map(|workspace| workspace.id) }
    };
    assert_eq!(found(&kept).await, Some(workspace));
    assert_eq!(found(&revoked).await, None);
}

async fn crash<S: Durable>(fixture: Fixture<S>) -> Fixture<S> {
    let Fixture { store, workspace } = fixture;
    Fixture { store: store.crash().await, workspace }
}
