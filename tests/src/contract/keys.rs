//! Rules for keys, which identify their workspace until they are revoked.

use std::sync::Arc;

use enrich_lib::key::ApiKey;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::{Quota, Workspace};

use super::{START, Store};

/// Generates the tests of the rules for keys. `$open` returns a fresh store (`Arc<impl Store>`).
#[macro_export]
macro_rules! keys_contract {
    ($open:expr) => {
        $crate::sentences! { keys, $open,
            a_key_leads_to_its_workspace_and_its_quota
            an_unknown_key_leads_nowhere
            all_keys_of_a_workspace_lead_to_it
            a_revoked_key_leads_nowhere
            a_key_that_is_revoked_unused_leads_nowhere
            revoking_a_key_leaves_the_others_alone
        }
    };
}

pub async fn a_key_leads_to_its_workspace_and_its_quota<S: Store>(store: Arc<S>) {
    let (small, large) = (Quota::new(7, 30).unwrap(), Quota::new(9_000, 86_400).unwrap());
    let (a, b) = (workspace(&*store, small).await, workspace(&*store, large).await);
    let (key_of_a, key_of_b) = (key(&*store, &a, 1).await, key(&*store, &b, 2).await);
    assert_eq!(found(&*store, &key_of_a).await, Some(Workspace { id: a, quota: small }));
    assert_eq!(found(&*store, &key_of_b).await, Some(Workspace { id: b, quota: large }));
}

pub async fn an_unknown_key_leads_nowhere<S: Store>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    key(&*store, &workspace, 1).await;
    assert_eq!(found(&*store, &api_key(2)).await, None);
}

pub async fn all_keys_of_a_workspace_lead_to_it<S: Store>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let (one, two) = (key(&*store, &workspace, 1).await, key(&*store, &workspace, 2).await);
    assert_eq!(found_id(&*store, &one).await, Some(workspace.clone()));
    assert_eq!(found_id(&*store, &two).await, Some(workspace));
}

pub async fn a_revoked_key_leads_nowhere<S: Store>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let key = key(&*store, &workspace, 1).await;
    // Looked up before it is revoked: a store that caches keys must evict this one.
    assert_eq!(found_id(&*store, &key).await, Some(workspace));
    revoke(&*store, &key).await;
    assert_eq!(found(&*store, &key).await, None);
}

pub async fn a_key_that_is_revoked_unused_leads_nowhere<S: Store>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let key = key(&*store, &workspace, 1).await;
    revoke(&*store, &key).await;
    assert_eq!(found(&*store, &key).await, None);
}

pub async fn revoking_a_key_leaves_the_others_alone<S: Store>(store: Arc<S>) {
    let workspace = workspace(&*store, Quota::default()).await;
    let (old, new) = (key(&*store, &workspace, 1).await, key(&*store, &workspace, 2).await);
    revoke(&*store, &old).await;
    assert_eq!(found_id(&*store, &new).await, Some(workspace));
}

async fn workspace(store: &impl Store, quota: Quota) -> WorkspaceId {
    store.create_workspace(quota, 0).await
}

async fn key(store: &impl Store, workspace: &WorkspaceId, seed: u8) -> ApiKey {
    let key = api_key(seed);
    store.create_key(workspace, &key).await;
    store.tick(START).await;
    key
}

async fn revoke(store: &impl Store, key: &ApiKey) {
    store.revoke(key).await;
    store.tick(START).await;
}

async fn found(store: &impl Store, key: &ApiKey) -> Option<Workspace> {
    store.keys().find(&key.digest()).await.unwrap()
}

async fn found_id(store: &impl Store, key: &ApiKey) -> Option<WorkspaceId> {
    found(store, key).await.map(|workspace| workspace.id)
}

/// Generates the key that belongs to `seed`.
fn api_key(seed: u8) -> ApiKey {
    ApiKey::generate(|| seed)
}
