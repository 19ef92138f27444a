//! Rules that random operations do not reach: limits, and operations at the same time.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{Balance, HoldOutcome, Settlement};
use enrich_lib::key::ApiKey;
use enrich_lib::model::LookupId;
use enrich_store::records::{KEYS_MAX, NewKey, SpendPage};
use enrich_store::users::{Link, Role, SESSIONS_MAX, Totp, USERS_MAX, UserId};
use enrich_store::{StoreError, TokenDigest};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};

use super::operator::{Operator, admin, admin_at, after_seconds, join, key, reset, today, token};
use super::{Administered, START};

/// Generates the tests of the rules. `$open` returns a fresh store (`Arc<impl Administered>`).
#[macro_export]
macro_rules! operator_contract {
    ($open:expr) => {
        $crate::rules! { rules, $open,
            number_of_keys_is_limited
            held_credits_are_kept_or_cannot_be_spent
            concurrent_adjustments_and_grants_lose_no_change
            spends_are_listed_in_pages
            link_is_used_once_by_concurrent_callers
            concurrent_removals_leave_an_admin
            number_of_users_and_invitations_is_limited
            number_of_sessions_is_limited
            second_factor_is_used_once_by_concurrent_callers
        }
    };
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
        let (key, admin) = (many(n), admin());
        ids.push(operator.accounts.create_key(&NewKey::new(&shop, "till", &key), &admin).await.unwrap());
    }
    operator.accounts.set_key_enabled(ids[1], false, &admin()).await.unwrap(); // it still counts
    let key = many(KEYS_MAX);
    let new = NewKey::new(&shop, "till", &key);
    let refused = operator.accounts.create_key(&new, &admin()).await;
    assert!(matches!(refused, Err(StoreError::TooManyKeys(id)) if id == shop));
    let refused = operator.accounts.rotate_key(ids[0], &key, None, after_seconds(60), &admin()).await;
    assert!(matches!(refused, Err(StoreError::TooManyKeys(_))));
    operator.accounts.revoke_key(ids[0], &admin()).await.unwrap();
    let expires_at = after_seconds(60);
    let short = NewKey { expires_at: Some(expires_at), ..new };
    operator.accounts.create_key(&short, &admin()).await.unwrap();
    let (next, later) = (many(KEYS_MAX + 1), admin_at(after_seconds(61)));
    let next = NewKey::new(&shop, "till", &next);
    assert!(operator.accounts.create_key(&next, &admin()).await.is_err());
    operator.accounts.create_key(&next, &later).await.unwrap();
}

/// A database that has the holds does not withdraw them. Otherwise, the spend fails.
pub async fn held_credits_are_kept_or_cannot_be_spent<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    let hold = operator.hold(key(1).digest().key_id(), 60, START);
    assert_eq!(operator.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
    let result = adjust(&mut operator, -40).await;
    let settled = operator.store.credits().settle(&hold, Settlement::Spend(60)).await;
    let balance = on_node(&operator).await;
    let (credits, expected) = match result {
        Err(StoreError::Overdrawn { available: 37 }) => (-37, [63, 0, 63]),
        result => {
            assert_eq!(result.unwrap().granted, 60);
            (-57, [3, 0, 3])
        }
    };
    assert_eq!((settled.is_ok(), balance.spent), (credits == -37, expected[2]));
    adjust(&mut operator, credits).await.unwrap();
    let balance = on_node(&operator).await;
    assert_eq!([balance.granted, balance.available, balance.spent], expected);
    check_audit(&mut operator).await;
}

pub async fn concurrent_adjustments_and_grants_lose_no_change<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store.clone()).await;
    let changing = [-30, 10, -30, 10, -30, 10, -30, 10].map(|credits: i64| {
        let (store, workspace) = (store.clone(), operator.workspace.clone());
        on_own_thread(async move {
            let mut accounts = store.accounts().await;
            let changed = match u64::try_from(credits) {
                Ok(granted) => accounts.grant(&workspace, granted, START).await.map(drop),
                Err(_) => {
                    let credits = NonZeroI64::new(credits).unwrap();
                    accounts.adjust(&workspace, credits, "typo", &admin()).await.map(drop)
                }
            };
            assert!(changed.is_ok() || credits < 0, "{changed:?}");
            if changed.is_ok() { credits } else { 0 }
        })
    });
    let mut changed = 0;
    for change in changing {
        changed += change.await.unwrap();
    }
    let balance = on_node(&operator).await;
    assert_eq!([balance.granted, balance.available].map(u64::cast_signed), [100 + changed, 97 + changed]);
    check_audit(&mut operator).await;
}

pub async fn spends_are_listed_in_pages<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let other = operator.create_workspace("other").await;
    operator.accounts.grant(&other, 40_000, START).await.unwrap();
    operator.store.tick(START).await;
    operator.bill(id, 1, START).await;
    for _ in 0..2 * SpendPage::SPENDS_READ_MAX / 1_000 {
        operator.bill_many(&other, id, 1_000).await;
    }
    operator.bill(id, 1, START + Duration::from_millis(1)).await;
    operator.store.tick(START).await; // commits what was acknowledged early
    let (mut next, end, mut pages) =
        (Some(today().first_lookup()), today().next().first_lookup(), Vec::new());
    while let Some(first) = next {
        let page = operator.accounts.spends(&operator.workspace, first, end).await.unwrap();
        next = page.next;
        pages.push(page.rows.len());
    }
    assert_eq!(pages, [1, 0, 1], "one without a row is not the last one");
}

pub async fn link_is_used_once_by_concurrent_callers<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store.clone()).await;
    let invitation = join(token(1), &operator.workspace, Role::Member, "ada");
    let workspace = operator.workspace.clone();
    let resets = (2..12).map(|number| reset(token(number), &workspace, "ada"));
    for link in [invitation].into_iter().chain(resets) {
        operator.accounts.create_link(&link, &admin()).await.unwrap();
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (mut accounts, digest) = (store.accounts().await, link.digest);
            callers.spawn(async move { accounts.use_link(&digest, "$hash", &admin()).await.unwrap() });
        }
        let users = callers.join_all().await;
        assert_eq!(users.iter().flatten().count(), 1, "{users:?}");
    }
}

pub async fn concurrent_removals_leave_an_admin<S: Administered>(store: Arc<S>) {
    /// Without a lock, two changes leave no admin in one of a few rounds.
    const ROUNDS: usize = 20;

    let mut operator = Operator::open(store.clone()).await;
    let shop = operator.workspace.clone();
    operator.join("ada", &shop, Role::Admin).await;
    for round in 0..ROUNDS {
        operator.join(&format!("bob{round}"), &shop, Role::Admin).await;
        let [first, second] = admins(&mut operator).await[..] else { panic!("two admins") };
        let (mut one, mut other) = (store.accounts().await, store.accounts().await);
        let (here, there) = (shop.clone(), shop.clone());
        let removal = tokio::spawn(async move { one.remove_user(&here, first, &admin()).await });
        let change =
            tokio::spawn(async move { other.set_role(&there, second, Role::Member, &admin()).await });
        let (removal, change) = (removal.await.unwrap(), change.await.unwrap());
        assert!(removal.is_ok() != change.is_ok(), "{removal:?} {change:?}");
        assert_eq!(admins(&mut operator).await.len(), 1);
    }
}

pub async fn number_of_users_and_invitations_is_limited<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    operator.join("ada", &shop, Role::Admin).await;
    let invitation = |n: u32| {
        let name = format!("user{n}");
        join(TokenDigest::from_token(name.as_bytes()), &shop, Role::Member, &name)
    };
    for n in 1..USERS_MAX {
        operator.accounts.create_link(&invitation(n), &admin()).await.unwrap();
    }
    let refused = operator.accounts.create_link(&invitation(USERS_MAX), &admin()).await;
    assert!(matches!(refused, Err(StoreError::TooManyUsers(id)) if id == shop));
    // A new link replaces an open one, and other workspaces are not affected.
    operator.accounts.create_link(&Link { digest: token(1), ..invitation(1) }, &admin()).await.unwrap();
    operator.accounts.create_link(&reset(token(2), &shop, "ada"), &admin()).await.unwrap();
    operator.accounts.create_link(&join(token(3), &other, Role::Member, "ada"), &admin()).await.unwrap();
    operator.accounts.delete_invitation(&shop, &token(1).id(), &admin()).await.unwrap();
    operator.accounts.delete_invitation(&shop, &invitation(2).digest.id(), &admin()).await.unwrap();
    operator.accounts.create_link(&invitation(USERS_MAX), &admin()).await.unwrap();
    let last = invitation(1);
    assert!(operator.accounts.create_link(&last, &admin()).await.is_err());
    operator.accounts.create_link(&last, &admin_at(last.expires_at)).await.unwrap();
}

pub async fn number_of_sessions_is_limited<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    operator.sign_in(bob, 200).await;
    let max = u8::try_from(SESSIONS_MAX).unwrap();
    for seed in 1..=max {
        let digest = operator.sign_in(ada, seed).await;
        // The second one was not used for the longest time.
        let used_at = if seed == 2 { 1 } else { 100 - u64::from(seed) };
        operator.accounts.touch_session(&digest, after_seconds(used_at)).await.unwrap();
    }
    assert_eq!(digests(&mut operator, ada).await.len(), usize::from(max));
    operator.sign_in(ada, max + 1).await;
    let left = digests(&mut operator, ada).await;
    assert_eq!(left.len(), usize::from(max));
    assert!(!left.contains(&token(2)) && left.contains(&token(1)) && left.contains(&token(max + 1)));
    assert_eq!(digests(&mut operator, bob).await, [token(200)]);
}

pub async fn second_factor_is_used_once_by_concurrent_callers<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store.clone()).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    // All connections are open before the first use.
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(store.accounts().await);
    }
    let mut callers = JoinSet::new();
    let user = operator.user(ada).await;
    for (n, mut accounts) in connections.into_iter().enumerate() {
        let user = user.clone();
        callers.spawn(async move {
            let is_new = match n % 2 {
                0 => accounts.use_totp_step(&user, 6).await,
                _ => accounts.use_recovery_code(&user, &token(7), &admin()).await,
            };
            is_new.unwrap()
        });
    }
    let results = callers.join_all().await;
    assert_eq!(results.iter().filter(|is_new| **is_new).count(), 2, "{results:?}");
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!((user.totp, user.recovery_codes), (Some(totp(6)), 0));
}

/// Returns the admins of the operator's workspace.
async fn admins<S>(operator: &mut Operator<S>) -> Vec<UserId> {
    let users = operator.accounts.users(Some(&operator.workspace)).await.unwrap();
    users.iter().filter(|user| user.role == Role::Admin).map(|user| user.id).collect()
}

/// Creates a key and bills 3 of the 100 credits. Returns the lookup.
async fn with_a_spend<S: Administered>(store: Arc<S>) -> (Operator<S>, LookupId) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let lookup = operator.bill(id, 3, START).await;
    (operator, lookup)
}

async fn adjust<S: Administered>(operator: &mut Operator<S>, credits: i64) -> Result<Balance, StoreError> {
    let credits = NonZeroI64::new(credits).unwrap();
    operator.accounts.adjust(&operator.workspace, credits, "typo", &admin()).await
}

/// Runs the operation of another process. SQLite's block their thread.
fn on_own_thread<T: Send + 'static>(operation: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(operation))
}

async fn on_node<S: Administered>(operator: &Operator<S>) -> Balance {
    operator.store.tick(START).await;
    operator.store.balance(&operator.workspace).await
}

async fn check_audit<S: Administered>(operator: &mut Operator<S>) {
    operator.store.tick(START).await;
    let audit = operator.accounts.audit().await.unwrap();
    assert!(audit.reconciles(), "{audit:?}");
}

/// Creates a user who is a member of the workspace.
async fn member<S: Administered>(store: Arc<S>) -> (Operator<S>, UserId) {
    let mut operator = Operator::open(store).await;
    let workspace = operator.workspace.clone();
    let user = operator.join("ada", &workspace, Role::Member).await;
    (operator, user)
}

async fn digests<S: Administered>(operator: &mut Operator<S>, user: UserId) -> Vec<TokenDigest> {
    let sessions = operator.accounts.sessions(user).await.unwrap();
    sessions.into_iter().map(|session| session.digest).collect()
}

fn totp(last_step: u64) -> Totp {
    Totp { secret: vec![7; 20], last_step }
}
