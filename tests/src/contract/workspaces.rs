//! Rules for changes of workspaces: limit, display name, suspension and deletion.

use std::sync::Arc;

use enrich_lib::credit::{HoldOutcome, Settlement};
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::records::{KeyState, NewKey, WorkspaceRow};
use enrich_store::users::Role;
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties, WorkspaceState};
use enrich_store::{Actor, StoreError};

use super::operator::{Operator, admin, admin_at, after_seconds, join, key, today, token};
use super::{Administered, START};

/// Generates the tests of the rules for changes of workspaces. `$open` returns a fresh store
/// (`Arc<impl Administered>`).
#[macro_export]
macro_rules! workspaces_contract {
    ($open:expr) => {
        $crate::rules! { workspaces, $open,
            new_workspace_has_defaults
            reserved_name_is_rejected
            name_in_another_case_is_rejected
            changed_limit_applies_to_a_cached_key
            invalid_limit_changes_nothing
            suspended_workspace_is_unauthorized_until_it_is_resumed
            lookup_in_progress_is_billed_after_suspension
            deleted_workspace_is_unauthorized_for_ever
            lookup_in_progress_is_billed_after_deletion
            keys_of_a_deleted_workspace_are_revoked
            deleted_workspace_cannot_be_changed
            deleted_workspace_stays_readable
            changes_are_in_the_audit_log
            change_without_effect_has_no_event
            low_balances_are_below_their_threshold
            change_of_an_unknown_workspace_is_reported
        }
    };
}

pub async fn new_workspace_has_defaults<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let row = row(&mut operator).await;
    assert_eq!(row.properties, WorkspaceProperties::new(Quota::default()));
    assert_eq!((row.created_at, row.balance.available), (START, 100));
    assert_eq!(operator.accounts.workspaces().await.unwrap(), [row]);
}

pub async fn reserved_name_is_rejected<S: Administered>(store: Arc<S>) {
    let mut accounts = store.accounts().await;
    for (name, is_reserved) in [("console.user.0011", true), ("console", false), ("consoles.user", false)] {
        let created = accounts.create_workspace(&name.parse().unwrap(), Quota::default(), 0, START).await;
        assert_eq!(matches!(created, Err(StoreError::WorkspaceReserved(_))), is_reserved, "{created:?}");
    }
}

pub async fn name_in_another_case_is_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let existing = operator.workspace.clone();
    let name: WorkspaceId = existing.as_str().to_uppercase().parse().unwrap();
    for (name, is_same) in [(&existing, true), (&name, false)] {
        match operator.accounts.create_workspace(name, Quota::default(), 0, START).await {
            Err(StoreError::WorkspaceExists(id)) => assert!(is_same && id == existing),
            Err(StoreError::WorkspaceCase(id)) => assert!(!is_same && id == existing),
            created => panic!("{created:?}"),
        }
    }
    change(&mut operator, &[WorkspaceChange::Deleted]).await;
    let created = operator.accounts.create_workspace(&name, Quota::default(), 0, START).await;
    assert!(matches!(&created, Err(StoreError::WorkspaceDeleted(id)) if *id == existing), "{created:?}");
    assert_eq!(operator.accounts.workspaces().await.unwrap().len(), 1);
}

pub async fn changed_limit_applies_to_a_cached_key<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.create_key(&key(1), None).await;
    assert_eq!(quota(&operator).await, Quota::default());
    change(&mut operator, &[WorkspaceChange::Quota { limit: Some(9), window_seconds: None }]).await;
    assert_eq!(quota(&operator).await, Quota::new(9, 60).unwrap());
    change(&mut operator, &[WorkspaceChange::Quota { limit: None, window_seconds: Some(30) }]).await;
    assert_eq!(quota(&operator).await, Quota::new(9, 30).unwrap());
    assert_eq!(row(&mut operator).await.properties.quota, Quota::new(9, 30).unwrap());
}

pub async fn invalid_limit_changes_nothing<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let before = row(&mut operator).await;
    for (limit, window_seconds) in [(Some(0), None), (None, Some(0)), (None, Some(86_401))] {
        let changes = [WorkspaceChange::LowBalance(5), WorkspaceChange::Quota { limit, window_seconds }];
        let changed = operator.accounts.change_workspace(&operator.workspace, &changes, &admin()).await;
        assert!(matches!(changed, Err(StoreError::Quota(_))), "{changed:?}");
    }
    assert_eq!(row(&mut operator).await, before);
    assert_eq!(operator.last_event().await.0, "credits.granted");
}

pub async fn suspended_workspace_is_unauthorized_until_it_is_resumed<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    assert!(operator.accepts(&key(1), START).await);
    let suspended = change(&mut operator, &[WorkspaceChange::Suspended(true)]).await;
    assert_eq!(suspended.properties.state(), WorkspaceState::Suspended);
    assert_eq!(suspended.properties.suspended_at, Some(START));
    assert!(!operator.accepts(&key(1), START).await);
    // Its keys stay as they are.
    let keys = operator.accounts.keys(&operator.workspace, today()).await.unwrap();
    assert_eq!((keys[0].id, keys[0].state(START)), (id, KeyState::Active));
    operator.create_key(&key(2), None).await;
    assert!(!operator.accepts(&key(2), START).await);
    change(&mut operator, &[WorkspaceChange::Suspended(false)]).await;
    assert!(operator.accepts(&key(1), START).await && operator.accepts(&key(2), START).await);
}

pub async fn lookup_in_progress_is_billed_after_suspension<S: Administered>(store: Arc<S>) {
    is_billed_after(store, WorkspaceChange::Suspended(true)).await;
}

pub async fn deleted_workspace_is_unauthorized_for_ever<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.create_key(&key(1), None).await;
    assert!(operator.accepts(&key(1), START).await);
    let deleted = change(&mut operator, &[WorkspaceChange::Deleted]).await;
    assert_eq!(deleted.properties.state(), WorkspaceState::Deleted);
    assert_eq!(deleted.properties.deleted_at, Some(START));
    assert!(!operator.accepts(&key(1), START).await);
    let resumed = [WorkspaceChange::Suspended(false)];
    operator.accounts.change_workspace(&operator.workspace, &resumed, &admin()).await.unwrap_err();
    assert!(!operator.accepts(&key(1), START).await);
}

pub async fn lookup_in_progress_is_billed_after_deletion<S: Administered>(store: Arc<S>) {
    is_billed_after(store, WorkspaceChange::Deleted).await;
}

pub async fn keys_of_a_deleted_workspace_are_revoked<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let first = operator.create_key(&key(1), None).await;
    operator.accounts.revoke_key(first, &admin_at(after_seconds(1))).await.unwrap();
    let second = operator.create_key(&key(2), None).await;
    operator
        .accounts
        .change_workspace(&operator.workspace, &[WorkspaceChange::Deleted], &admin_at(after_seconds(2)))
        .await
        .unwrap();
    let keys = operator.accounts.keys(&operator.workspace, today()).await.unwrap();
    let revoked: Vec<_> = keys.iter().map(|key| key.revoked_at).collect();
    assert_eq!(revoked, [Some(after_seconds(1)), Some(after_seconds(2))]);
    for is_enabled in [true, false] {
        let set = operator.accounts.set_key_enabled(second, is_enabled, &admin()).await;
        assert!(matches!(set, Err(StoreError::KeyEnded(id)) if id == second), "{set:?}");
    }
    let rotated = operator.accounts.rotate_key(second, &key(3), None, START, &admin()).await;
    assert!(matches!(rotated, Err(StoreError::KeyEnded(id)) if id == second), "{rotated:?}");
}

pub async fn deleted_workspace_cannot_be_changed<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    change(&mut operator, &[WorkspaceChange::Deleted]).await;
    let (accounts, id) = (&mut operator.accounts, &operator.workspace);
    let invitation = join(token(1), id, Role::Member, "ada");
    let results = [
        accounts.create_workspace(id, Quota::default(), 1, START).await,
        accounts.change_workspace(id, &[WorkspaceChange::Deleted], &admin()).await.map(drop),
        accounts
            .change_workspace(id, &[WorkspaceChange::DisplayName(Some("Shop"))], &admin())
            .await
            .map(drop),
        accounts.grant(id, 1, START).await.map(drop),
        accounts.create_key(&NewKey::new(id, "till", &key(1)), &admin()).await.map(drop),
        accounts.create_link(&invitation, &admin()).await,
    ];
    for result in results {
        assert!(matches!(&result, Err(StoreError::WorkspaceDeleted(deleted)) if deleted == id), "{result:?}");
    }
    assert_eq!(operator.last_event().await.0, "workspace.deleted");
}

pub async fn deleted_workspace_stays_readable<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    operator.bill(id, 3, START).await;
    change(&mut operator, &[WorkspaceChange::Deleted]).await;
    let balance = operator.accounts.balance(&operator.workspace).await.unwrap();
    assert_eq!((balance.granted, balance.available, balance.spent), (100, 97, 3));
    operator.store.tick(START).await;
    assert_eq!(operator.accounts.usage(&operator.workspace, today(), today()).await.unwrap().len(), 1);
    assert_eq!(operator.accounts.grants(&operator.workspace).await.unwrap().len(), 1);
    assert!(operator.accounts.audit().await.unwrap().reconciles());
}

pub async fn changes_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let changes = [
        WorkspaceChange::Quota { limit: Some(9), window_seconds: Some(30) },
        WorkspaceChange::LowBalance(25),
        WorkspaceChange::DisplayName(Some("The Shop")),
        WorkspaceChange::DisplayName(None),
        WorkspaceChange::Suspended(true),
        WorkspaceChange::Suspended(false),
        WorkspaceChange::Deleted,
    ];
    change(&mut operator, &changes).await;
    let events = operator.events(&operator.workspace.clone()).await;
    let expected = [
        ("workspace.limit_changed", "9 requests per 30 s"),
        ("workspace.low_balance_changed", "25"),
        ("workspace.renamed", "The Shop"),
        ("workspace.renamed", "shop"),
        ("workspace.suspended", "shop"),
        ("workspace.resumed", "shop"),
        ("workspace.deleted", "shop"),
    ];
    assert_eq!(events[2..], expected.map(|(action, subject)| (action.to_owned(), subject.to_owned())));
}

pub async fn change_without_effect_has_no_event<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let suspend = [WorkspaceChange::Suspended(true)];
    let first = change(&mut operator, &suspend).await;
    let later = Actor { now: after_seconds(9), ..admin() };
    let again = operator.accounts.change_workspace(&operator.workspace, &suspend, &later).await.unwrap();
    assert_eq!(again, first);
    change(&mut operator, &[WorkspaceChange::Suspended(false), WorkspaceChange::Suspended(false)]).await;
    change(&mut operator, &[WorkspaceChange::LowBalance(0), WorkspaceChange::DisplayName(None)]).await;
    change(&mut operator, &[WorkspaceChange::Quota { limit: Some(500), window_seconds: None }]).await;
    let events = operator.events(&operator.workspace.clone()).await;
    let actions: Vec<_> = events.iter().skip(2).map(|(action, _)| action.as_str()).collect();
    assert_eq!(actions, ["workspace.suspended", "workspace.resumed"]);
}

pub async fn low_balances_are_below_their_threshold<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.create_workspace("other").await;
    for (threshold, is_low) in [(0, false), (100, false), (101, true)] {
        let row = change(&mut operator, &[WorkspaceChange::LowBalance(threshold)]).await;
        let low = operator.accounts.low_balances().await.unwrap();
        assert_eq!(low, if is_low { vec![row] } else { Vec::new() }, "{threshold}");
    }
    change(&mut operator, &[WorkspaceChange::LowBalance(98)]).await;
    operator.bill(key(1).digest().key_id(), 3, START).await;
    assert_eq!(operator.accounts.low_balances().await.unwrap().len(), 1);
    change(&mut operator, &[WorkspaceChange::Deleted]).await;
    assert!(operator.accounts.low_balances().await.unwrap().is_empty());
}

pub async fn change_of_an_unknown_workspace_is_reported<S: Administered>(store: Arc<S>) {
    let mut accounts = store.accounts().await;
    let unknown: WorkspaceId = "unknown".parse().unwrap();
    let results = [
        accounts.change_workspace(&unknown, &[WorkspaceChange::Deleted], &admin()).await.map(drop),
        accounts.workspace(&unknown).await.map(drop),
    ];
    for result in results {
        assert!(matches!(&result, Err(StoreError::UnknownWorkspace(id)) if *id == unknown), "{result:?}");
    }
}

/// Changes the workspace between a hold and its settlement. The spend is billed.
async fn is_billed_after<S: Administered>(store: Arc<S>, changed: WorkspaceChange<'static>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let hold = operator.hold(id, 2, START);
    assert_eq!(operator.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
    change(&mut operator, &[changed]).await;
    assert!(!operator.accepts(&key(1), START).await);
    operator.store.credits().settle(&hold, Settlement::Spend(2)).await.unwrap();
    let balance = operator.accounts.balance(&operator.workspace).await.unwrap();
    assert_eq!((balance.granted, balance.spent), (100, 2));
}

async fn change<S: Administered>(
    operator: &mut Operator<S>,
    changes: &[WorkspaceChange<'_>],
) -> WorkspaceRow {
    operator.accounts.change_workspace(&operator.workspace, changes, &admin()).await.unwrap()
}

async fn row<S: Administered>(operator: &mut Operator<S>) -> WorkspaceRow {
    operator.accounts.workspace(&operator.workspace).await.unwrap()
}

/// Returns the quota that the node applies to the first key.
async fn quota<S: Administered>(operator: &Operator<S>) -> Quota {
    operator.store.tick(START).await;
    operator.store.keys().find(&key(1).digest()).await.unwrap().unwrap().quota
}
