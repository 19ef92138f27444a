//! Rules for the operations on keys and grants, and their events in the audit log.

use std::sync::Arc;

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::records::{KEYS_MAX, KeyRow, KeyState, NewKey};
use enrich_store::{Actor, StoreError, TokenDigest};

use super::operator::{ADMIN, Operator, admin, admin_at, after_seconds, key, today};
use super::{Administered, START};

/// Generates the tests of the rules for keys and grants. `$open` returns a fresh store
/// (`Arc<impl Administered>`).
#[macro_export]
macro_rules! admin_contract {
    ($open:expr) => {
        $crate::rules! { admin, $open,
            expired_key_is_unauthorized
            key_that_expired_before_use_is_unauthorized
            disabled_key_is_unauthorized_until_it_is_enabled
            disabled_key_that_expired_cannot_be_enabled
            rotated_key_works_until_its_grace_ends
            new_key_of_a_rotation_has_the_label_and_expiry
            rotation_does_not_extend_the_old_key
            only_an_active_key_can_be_rotated
            form_creates_one_key
            ended_key_cannot_be_enabled
            revocation_keeps_its_first_date
            unknown_key_is_reported
            unknown_workspace_is_reported
            key_list_shows_all_columns
            operations_are_in_the_audit_log
            events_have_author_time_and_address
            unchanged_key_has_no_event
            failed_operation_has_no_event
            number_of_keys_is_limited
            keys_are_read_in_pages
        }
    };
}

pub async fn expired_key_is_unauthorized<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.create_key(&key(1), Some(after_seconds(60))).await;
    // Used before it expires: a store that caches keys must not accept the cached one afterwards.
    assert!(operator.accepts(&key(1), START).await);
    assert!(operator.accepts(&key(1), after_seconds(59)).await);
    assert!(!operator.accepts(&key(1), after_seconds(60)).await);
}

pub async fn key_that_expired_before_use_is_unauthorized<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.create_key(&key(1), Some(after_seconds(60))).await;
    assert!(!operator.accepts(&key(1), after_seconds(60)).await);
}

pub async fn disabled_key_is_unauthorized_until_it_is_enabled<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    assert!(operator.accepts(&key(1), START).await);
    operator.accounts.set_key_enabled(id, false, &admin()).await.unwrap();
    assert!(!operator.accepts(&key(1), START).await);
    assert_eq!(row(&mut operator, id).await.disabled_at, Some(START));
    operator.accounts.set_key_enabled(id, true, &admin()).await.unwrap();
    assert!(operator.accepts(&key(1), START).await);
    assert_eq!(row(&mut operator, id).await.disabled_at, None);
}

pub async fn disabled_key_that_expired_cannot_be_enabled<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), Some(after_seconds(60))).await;
    operator.accounts.set_key_enabled(id, false, &admin()).await.unwrap();
    let enabled = operator.accounts.set_key_enabled(id, true, &admin_at(after_seconds(60))).await;
    assert!(matches!(enabled, Err(StoreError::KeyEnded(ended)) if ended == id));
    assert!(!operator.accepts(&key(1), after_seconds(60)).await);
}

pub async fn rotated_key_works_until_its_grace_ends<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let old = operator.create_key(&key(1), None).await;
    assert!(operator.accepts(&key(1), START).await);
    let new = operator.accounts.rotate_key(old, &key(2), None, after_seconds(60), &admin()).await.unwrap();
    assert_eq!(new, key(2).digest().key_id());
    assert!(operator.accepts(&key(1), START).await && operator.accepts(&key(2), START).await);
    assert!(!operator.accepts(&key(1), after_seconds(60)).await);
    assert!(operator.accepts(&key(2), after_seconds(60)).await);
    assert_eq!(row(&mut operator, old).await.state(after_seconds(60)), KeyState::Expired);
}

pub async fn new_key_of_a_rotation_has_the_label_and_expiry<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let old = operator.create_key(&key(1), Some(after_seconds(3_600))).await;
    let new = operator.accounts.rotate_key(old, &key(2), None, after_seconds(60), &admin()).await.unwrap();
    let (old, new) = (row(&mut operator, old).await, row(&mut operator, new).await);
    assert_eq!((old.label, old.expires_at), ("till".to_owned(), Some(after_seconds(60))));
    assert_eq!((new.label, new.expires_at), ("till".to_owned(), Some(after_seconds(3_600))));
    assert_eq!(new.masked, key(2).masked());
}

pub async fn rotation_does_not_extend_the_old_key<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let old = operator.create_key(&key(1), Some(after_seconds(60))).await;
    operator.accounts.rotate_key(old, &key(2), None, after_seconds(3_600), &admin()).await.unwrap();
    assert_eq!(row(&mut operator, old).await.expires_at, Some(after_seconds(60)));
}

pub async fn only_an_active_key_can_be_rotated<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let disabled = operator.create_key(&key(1), None).await;
    operator.accounts.set_key_enabled(disabled, false, &admin()).await.unwrap();
    let revoked = operator.create_key(&key(2), None).await;
    operator.accounts.revoke_key(revoked, &admin()).await.unwrap();
    let expired = operator.create_key(&key(3), Some(START)).await;
    for id in [disabled, revoked, expired] {
        let rotated = operator.accounts.rotate_key(id, &key(4), None, after_seconds(60), &admin()).await;
        assert!(matches!(rotated, Err(StoreError::KeyEnded(ended)) if ended == id), "{rotated:?}");
    }
    assert_eq!(keys(&mut operator).await.len(), 3);
}

pub async fn form_creates_one_key<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let (shop, other) = (operator.workspace.clone(), operator.create_workspace("other").await);
    let (first, second) = (TokenDigest::from_token(b"first"), TokenDigest::from_token(b"second"));
    let create = async |operator: &mut Operator<S>, workspace: &WorkspaceId, seed, form| {
        let key = key(seed);
        let new = NewKey { form: Some(form), ..NewKey::new(workspace, "till", &key) };
        operator.accounts.create_key(&new, &admin()).await
    };
    let old = create(&mut operator, &shop, 1, &first).await.unwrap();
    let again = create(&mut operator, &shop, 2, &first).await;
    assert!(matches!(again, Err(StoreError::FormUsed)), "{again:?}");
    create(&mut operator, &other, 3, &first).await.unwrap();
    for (seed, form, is_new) in [(4, &first, false), (5, &second, true), (6, &second, false)] {
        // After the rotation, the old key has ended.
        let rotated = operator.accounts.rotate_key(old, &key(seed), Some(form), START, &admin()).await;
        assert_eq!(rotated.is_ok(), is_new, "{rotated:?}");
        assert!(is_new || matches!(rotated, Err(StoreError::FormUsed)), "{rotated:?}");
    }
    assert_eq!(keys(&mut operator).await.len(), 2);
}

pub async fn ended_key_cannot_be_enabled<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let revoked = operator.create_key(&key(1), None).await;
    operator.accounts.revoke_key(revoked, &admin()).await.unwrap();
    let expired = operator.create_key(&key(2), Some(START)).await;
    for id in [revoked, expired] {
        for is_enabled in [true, false] {
            let set = operator.accounts.set_key_enabled(id, is_enabled, &admin()).await;
            assert!(matches!(set, Err(StoreError::KeyEnded(ended)) if ended == id), "{set:?}");
        }
    }
}

pub async fn revocation_keeps_its_first_date<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    for seconds in [1, 2] {
        operator.accounts.revoke_key(id, &admin_at(after_seconds(seconds))).await.unwrap();
    }
    assert_eq!(row(&mut operator, id).await.revoked_at, Some(after_seconds(1)));
    assert!(!operator.accepts(&key(1), START).await);
}

pub async fn unknown_key_is_reported<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = key(1).digest().key_id();
    let results = [
        operator.accounts.revoke_key(id, &admin()).await,
        operator.accounts.set_key_enabled(id, false, &admin()).await,
        operator.accounts.rotate_key(id, &key(2), None, START, &admin()).await.map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(StoreError::UnknownKey(unknown)) if unknown == id), "{result:?}");
    }
}

pub async fn unknown_workspace_is_reported<S: Administered>(store: Arc<S>) {
    let mut accounts = store.accounts().await;
    let unknown = "unknown".parse().unwrap();
    let results = [
        accounts.grants(&unknown).await.map(drop),
        accounts.grant(&unknown, 1, START).await.map(drop),
        accounts.keys(&unknown, today()).await.map(drop),
        accounts.create_key(&NewKey::new(&unknown, "till", &key(1)), &admin()).await.map(drop),
        accounts.usage(&unknown, today(), today()).await.map(drop),
        accounts.audit_log(&unknown, None, 1).await.map(drop),
        accounts.users(Some(&unknown)).await.map(drop),
        accounts.invitations(&unknown, START).await.map(drop),
    ];
    for result in results {
        assert!(matches!(&result, Err(StoreError::UnknownWorkspace(id)) if *id == unknown), "{result:?}");
    }
}

pub async fn key_list_shows_all_columns<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let first = operator.create_key(&key(1), Some(after_seconds(60))).await;
    let second = operator.create_key(&key(2), None).await;
    operator.accounts.revoke_key(second, &admin_at(after_seconds(5))).await.unwrap();
    let keys = keys(&mut operator).await;
    assert_eq!(keys.iter().map(|key| key.id).collect::<Vec<_>>(), [first, second]);
    let expected = KeyRow {
        id: first,
        label: "till".to_owned(),
        masked: key(1).masked(),
        created_by: ADMIN.to_owned(),
        created_at: START,
        last_used_at: None,
        uses: 0,
        expires_at: Some(after_seconds(60)),
        disabled_at: None,
        revoked_at: None,
    };
    assert_eq!(keys[0], expected);
    assert_eq!((keys[1].expires_at, keys[1].revoked_at), (None, Some(after_seconds(5))));
}

pub async fn operations_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    operator.accounts.grant(&operator.workspace, 5, START).await.unwrap();
    let id = operator.create_key(&key(1), None).await;
    operator.accounts.set_key_enabled(id, false, &admin()).await.unwrap();
    operator.accounts.set_key_enabled(id, true, &admin()).await.unwrap();
    let new = operator.accounts.rotate_key(id, &key(2), None, after_seconds(60), &admin()).await.unwrap();
    operator.accounts.revoke_key(new, &admin()).await.unwrap();

    let empty = "empty".parse().unwrap();
    operator.accounts.create_workspace(&empty, Quota::default(), 0, START).await.unwrap();
    assert_eq!(operator.events(&empty).await, [("workspace.created".to_owned(), "empty".to_owned())]);
    let (old, labelled) = (format!("{id} (till)"), format!("{new} (till)"));
    let expected = [
        ("workspace.created", "shop"),
        ("credits.granted", "100"),
        ("credits.granted", "5"),
        ("key.created", &old),
        ("key.disabled", &old),
        ("key.enabled", &old),
        ("key.rotated", &format!("{old} to {new}")),
        ("key.revoked", &labelled),
    ];
    let expected = expected.map(|(action, subject)| (action.to_owned(), subject.to_owned()));
    assert_eq!(operator.events(&operator.workspace.clone()).await, expected);
}

pub async fn events_have_author_time_and_address<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let actor = admin_at(after_seconds(7));
    operator.accounts.create_key(&NewKey::new(&operator.workspace, "till", &key(1)), &actor).await.unwrap();
    let events = operator.accounts.audit_log(&operator.workspace, None, 10).await.unwrap();
    let newest = &events[0];
    assert_eq!((newest.actor.as_str(), newest.address, newest.at), (ADMIN, actor.address, actor.now));
    let oldest = events.last().unwrap();
    assert_eq!((oldest.actor.as_str(), oldest.address, oldest.at), (Actor::OPERATOR, None, START));
}

pub async fn unchanged_key_has_no_event<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    operator.accounts.set_key_enabled(id, true, &admin()).await.unwrap();
    assert_eq!(operator.last_event().await.0, "key.created");
    for _ in 0..2 {
        operator.accounts.set_key_enabled(id, false, &admin()).await.unwrap();
    }
    for _ in 0..2 {
        operator.accounts.revoke_key(id, &admin()).await.unwrap();
    }
    let events = operator.events(&operator.workspace.clone()).await;
    let actions: Vec<_> = events.iter().skip(2).map(|(action, _)| action.as_str()).collect();
    assert_eq!(actions, ["key.created", "key.disabled", "key.revoked"]);
}

pub async fn failed_operation_has_no_event<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), Some(START)).await;
    operator.accounts.rotate_key(id, &key(2), None, START, &admin()).await.unwrap_err();
    operator.accounts.set_key_enabled(id, false, &admin()).await.unwrap_err();
    operator.accounts.grant(&operator.workspace, u64::MAX, START).await.unwrap_err();
    assert_eq!(operator.last_event().await.0, "key.created");
}

async fn keys<S: Administered>(operator: &mut Operator<S>) -> Vec<KeyRow> {
    operator.accounts.keys(&operator.workspace, today()).await.unwrap()
}

async fn row<S: Administered>(operator: &mut Operator<S>, id: KeyId) -> KeyRow {
    keys(operator).await.into_iter().find(|key| key.id == id).unwrap()
}

pub async fn number_of_keys_is_limited<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let many = |n: u32| {
        let digest = TokenDigest::from_token(&n.to_be_bytes());
        let mut bytes = digest.as_bytes().iter().copied().cycle();
        ApiKey::generate(|| bytes.next().unwrap())
    };
    let shop = operator.workspace.clone();
    let mut ids = Vec::new();
    for n in 0..KEYS_MAX {
        ids.push(
            operator.accounts.create_key(&NewKey::new(&shop, "till", &many(n)), &admin()).await.unwrap(),
        );
    }
    let key = many(KEYS_MAX);
    let new = NewKey::new(&shop, "till", &key);
    let refused = operator.accounts.create_key(&new, &admin()).await;
    assert!(matches!(refused, Err(StoreError::TooManyKeys(id)) if id == shop));
    let refused = operator.accounts.rotate_key(ids[0], &key, None, after_seconds(60), &admin()).await;
    assert!(matches!(refused, Err(StoreError::TooManyKeys(_))));
    operator.accounts.revoke_key(ids[0], &admin()).await.unwrap();
    operator.accounts.create_key(&new, &admin()).await.unwrap();
}

pub async fn keys_are_read_in_pages<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let mut ids = Vec::new();
    for seed in 1..=4 {
        ids.push(operator.create_key(&key(seed), (seed == 3).then(|| after_seconds(5))).await);
    }
    operator.accounts.revoke_key(ids[3], &admin()).await.unwrap();
    let page = async |operator: &mut Operator<S>, now, offset| {
        let keys = operator.accounts.key_page(&shop, now, offset, 2).await.unwrap();
        keys.iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(page(&mut operator, START, 0).await, [ids[2], ids[1]]);
    assert_eq!(page(&mut operator, START, 2).await, [ids[0], ids[3]]);
    assert_eq!(page(&mut operator, START, 4).await, []);
    assert_eq!(page(&mut operator, after_seconds(5), 1).await, [ids[0], ids[3]], "an expired key has ended");
    let all = operator.accounts.keys(&shop, today()).await.unwrap();
    assert_eq!(operator.accounts.key(&shop, ids[1], today()).await.unwrap(), all[1]);
    let other = operator.create_workspace("other").await;
    let foreign = operator.accounts.key(&other, ids[1], today()).await;
    assert!(matches!(foreign, Err(StoreError::UnknownKey(id)) if id == ids[1]));
}
