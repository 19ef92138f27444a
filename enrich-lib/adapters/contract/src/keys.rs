//! Rules for keys, which identify their workspace until they are revoked.

use std::sync::Arc;

use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::{Quota, Workspace};

use crate::concurrency::together;
use crate::{KeyStore, START};

/// Generates the tests of the rules for keys. `$open` returns a fresh store (`Arc<impl KeyStore>`).
#[macro_export]
macro_rules! keys_contract {
    ($($open:tt)*) => {
        $crate::rules! { keys, ($($open)*),
            finds_the_workspace_and_quota_of_a_key
            key_created_after_it_was_unknown_is_found
            revoked_key_is_not_found
            key_revoked_during_lookups_is_not_found
            test_key_is_found_as_one
            key_is_found_by_all_of_its_digest
        }
    };
}

pub async fn finds_the_workspace_and_quota_of_a_key<S: KeyStore>(store: Arc<S>) {
    let (small, large) = (Quota::new(7, 30).unwrap(), Quota::new(9_000, 86_400).unwrap());
    let (a, b) = (workspace(&*store, small).await, workspace(&*store, large).await);
    let (key_of_a, key_of_b) = (key(&*store, &a, 1).await, key(&*store, &b, 2).await);
    assert_eq!(found(&*store, &key_of_a).await, Some(Workspace::new(a, small)));
    assert_eq!(found(&*store, &key_of_b).await, Some(Workspace::new(b, large)));
}

pub async fn key_created_after_it_was_unknown_is_found<S: KeyStore>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    // Looked up several times: a store that remembers unknown keys must forget this one.
    for _ in 0..3 {
        assert_eq!(found(&*store, &api_key(1)).await, None);
    }
    let key = key(&*store, &workspace, 1).await;
    assert_eq!(found_id(&*store, &key).await, Some(workspace));
}

pub async fn revoked_key_is_not_found<S: KeyStore>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let (old, new) = (key(&*store, &workspace, 1).await, key(&*store, &workspace, 2).await);
    let unread = key(&*store, &workspace, 3).await;
    // Looked up before one is revoked: a store that caches keys must evict this one.
    for key in [&old, &new] {
        assert_eq!(found_id(&*store, key).await, Some(workspace.clone()));
    }
    store.revoke(&old).await;
    store.tick(START).await;
    assert_eq!(found(&*store, &old).await, None);
    for key in [&new, &unread] {
        assert_eq!(found_id(&*store, key).await, Some(workspace.clone()));
    }
}

/// A cache must not keep a key that a lookup has read before its revocation.
pub async fn key_revoked_during_lookups_is_not_found<S: KeyStore>(store: Arc<S>) {
    const KEYS: u8 = 8;

    let workspace = workspace(&*store, Quota::default()).await;
    for seed in 0..KEYS {
        drop(key(&*store, &workspace, seed).await);
    }
    together(|i| {
        let (store, key) = (store.clone(), api_key(i as u8 % KEYS));
        async move {
            if i < u32::from(KEYS) {
                store.revoke(&key).await;
                store.tick(START).await;
            }
            store.keys().find(&key.digest()).await.unwrap();
        }
    })
    .await;
    store.tick(START).await;
    for seed in 0..KEYS {
        assert_eq!(found(&*store, &api_key(seed)).await, None);
    }
}

pub async fn test_key_is_found_as_one<S: KeyStore>(store: Arc<S>) {
    if !store.has_test_keys() {
        return;
    }
    let workspace = workspace(&*store, Quota::default()).await;
    let (live, test) = (key(&*store, &workspace, 1).await, api_key(2).into_test());
    store.create_key(&workspace, &test).await;
    store.tick(START).await;
    for (key, is_test) in [(live, false), (test, true)] {
        assert_eq!(found(&*store, &key).await.map(|workspace| workspace.is_test), Some(is_test));
    }
}

pub async fn key_is_found_by_all_of_its_digest<S: KeyStore>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let key = key(&*store, &workspace, 1).await;
    assert_eq!(found_id(&*store, &key).await, Some(workspace));
    // The first 4 bytes are public: they are the key's id. Another key with the same id can be found by trying.
    for byte in 0..32 {
        let mut digest = *key.digest().as_bytes();
        digest[byte] ^= 1;
        let found = store.keys().find(&KeyDigest::from_bytes(digest)).await.unwrap();
        assert_eq!(found, None, "byte {byte} of the digest is ignored");
    }
}

async fn workspace(store: &impl KeyStore, quota: Quota) -> WorkspaceId {
    store.create_workspace(quota, 0).await
}

async fn key(store: &impl KeyStore, workspace: &WorkspaceId, seed: u8) -> ApiKey {
    let key = api_key(seed);
    store.create_key(workspace, &key).await;
    store.tick(START).await;
    key
}

async fn found(store: &impl KeyStore, key: &ApiKey) -> Option<Workspace> {
    store.keys().find(&key.digest()).await.unwrap()
}

async fn found_id(store: &impl KeyStore, key: &ApiKey) -> Option<WorkspaceId> {
    found(store, key).await.map(|workspace| workspace.id)
}

/// Generates the key that belongs to `seed`.
fn api_key(seed: u8) -> ApiKey {
    ApiKey::generate(|| seed)
}
