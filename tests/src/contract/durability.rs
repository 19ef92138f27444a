//! Rules for the state of a durable store after a crash.

use std::sync::Arc;

use enrich_lib::credit::HoldOutcome::Granted;
use enrich_lib::key::ApiKey;
use enrich_lib::window::Quota;

use super::desk::{Desk, Refused};
use super::{Durable, START};

/// Generates the tests of the rules for crashes. `$open` returns a fresh store (`Arc<impl Durable>`).
#[macro_export]
macro_rules! durability_contract {
    ($open:expr) => {
        $crate::sentences! { durability, $open,
            a_spend_survives_a_crash
            a_grant_survives_a_crash
            a_hold_ends_with_a_crash
            a_key_survives_a_crash_and_so_does_its_end
        }
    };
}

pub async fn a_spend_survives_a_crash<S: Durable>(store: Arc<S>) {
    let mut desk = Desk::open(store, 10).await;
    for n in 0..3 {
        let hold = desk.holding(n, 2).await;
        assert_eq!(desk.spend(&hold, 1).await, Ok(()));
        desk = crash(desk).await;
        assert_eq!(desk.totals().await, (9 - u64::from(n), 0, u64::from(n) + 1));
    }
}

pub async fn a_grant_survives_a_crash<S: Durable>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.store.grant(&desk.workspace, 5).await; // without a tick, so that the node has not seen it
    let desk = crash(desk).await;
    assert_eq!(desk.totals().await, (15, 0, 0));
}

pub async fn a_hold_ends_with_a_crash<S: Durable>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let lost = desk.holding(1, 10).await;
    let desk = crash(desk).await;
    // If nodes share the store, the credits may become available only when the crashed node's lease ends.
    desk.tick(lost.expires_at).await;
    assert_eq!(desk.totals().await, (10, 0, 0));
    assert_eq!(desk.spend(&lost, 10).await, Err(Refused));
    let mut next = desk.lookup(2, 10);
    next.placed_at = lost.expires_at;
    next.expires_at = lost.expires_at + super::desk::HOLD_LIFE;
    assert_eq!(desk.hold(&next).await, Ok(Granted));
}

pub async fn a_key_survives_a_crash_and_so_does_its_end<S: Durable>(store: Arc<S>) {
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

async fn crash<S: Durable>(desk: Desk<S>) -> Desk<S> {
    let Desk { store, workspace } = desk;
    Desk { store: store.crash().await, workspace }
}
