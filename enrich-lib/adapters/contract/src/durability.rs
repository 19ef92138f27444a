//! Rules for the keys of a durable store after a crash. [`machine`](crate::machine) compares its credits.

use std::sync::Arc;

use enrich_lib::key::ApiKey;
use enrich_lib::window::Quota;

use crate::{Durable, START};

/// Generates the tests of the rules for crashes. `$open` returns a fresh store (`Arc<impl Durable>`).
#[macro_export]
macro_rules! durability_contract {
    ($($open:tt)*) => {
        $crate::rules! { durability, ($($open)*),
            keys_and_revocations_survive_a_crash
        }
    };
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
