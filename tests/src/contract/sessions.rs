//! Rules for passwords, second factors and sessions.

use std::sync::Arc;

use enrich_store::TokenDigest;
use enrich_store::users::{Role, Session, Totp, UserId};
use tokio::task::JoinSet;

use super::Administered;
use super::operator::{Operator, admin, after_seconds, session, token};

/// Generates the tests of the rules for sign-in. `$open` returns a fresh store (`Arc<impl Administered>`).
#[macro_export]
macro_rules! sessions_contract {
    ($open:expr) => {
        $crate::rules! { sessions, $open,
            session_is_found_until_it_ends
            use_of_a_session_is_recorded
            renewed_session_has_another_token_and_the_same_creation_date
            use_of_an_ended_session_does_nothing
            new_session_removes_idle_sessions
            sessions_are_listed_last_used_first
            session_of_another_user_is_not_ended
            all_other_sessions_are_ended
            password_change_ends_other_sessions
            second_factor_change_ends_other_sessions
            second_factor_is_stored_and_removed
            totp_step_is_used_once
            second_factor_is_used_once_by_concurrent_callers
            totp_step_needs_a_second_factor
            recovery_code_is_used_once
            recovery_code_belongs_to_its_user
            new_recovery_codes_replace_old_ones
            sign_in_and_credentials_are_in_the_audit_log
            ended_sessions_are_in_the_audit_log
        }
    };
}

pub async fn session_is_found_until_it_ends<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let digest = operator.sign_in(ada, 1).await;
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), Some(session(ada, 1)));
    assert_eq!(operator.accounts.session(&token(2)).await.unwrap(), None);
    assert!(operator.accounts.end_session(ada, &digest.id(), &admin()).await.unwrap());
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), None);
    assert!(!operator.accounts.end_session(ada, &digest.id(), &admin()).await.unwrap());
}

pub async fn use_of_a_session_is_recorded<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let digest = operator.sign_in(ada, 1).await;
    operator.accounts.touch_session(&digest, after_seconds(5)).await.unwrap();
    let used = Session { last_seen_at: after_seconds(5), ..session(ada, 1) };
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), Some(used.clone()));
}

pub async fn renewed_session_has_another_token_and_the_same_creation_date<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let digest = operator.sign_in(ada, 1).await;
    let (new, now) = (token(2), after_seconds(6));
    operator.accounts.renew_session(&digest, &new, now).await.unwrap();
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), None);
    let renewed = Session { digest: new, authenticated_at: now, last_seen_at: now, ..session(ada, 1) };
    assert_eq!(operator.accounts.session(&new).await.unwrap(), Some(renewed));
}

pub async fn use_of_an_ended_session_does_nothing<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let digest = operator.sign_in(ada, 1).await;
    operator.accounts.end_sessions(ada, None, &admin()).await.unwrap();
    operator.accounts.touch_session(&digest, after_seconds(5)).await.unwrap();
    operator.accounts.renew_session(&digest, &token(2), after_seconds(5)).await.unwrap();
    assert_eq!(operator.accounts.session(&token(2)).await.unwrap(), None);
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), None);
}

pub async fn new_session_removes_idle_sessions<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let (idle, used) = (operator.sign_in(ada, 1).await, operator.sign_in(ada, 2).await);
    operator.accounts.touch_session(&used, after_seconds(60)).await.unwrap();
    let new = Session { last_seen_at: after_seconds(90), ..session(ada, 3) };
    operator.accounts.begin_session(&new, after_seconds(60), &admin()).await.unwrap();
    assert_eq!(operator.accounts.session(&idle).await.unwrap(), None);
    assert!(operator.accounts.session(&used).await.unwrap().is_some());
}

pub async fn sessions_are_listed_last_used_first<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    for (seed, seconds) in [(1, 20), (2, 10), (3, 30)] {
        let digest = operator.sign_in(ada, seed).await;
        operator.accounts.touch_session(&digest, after_seconds(seconds)).await.unwrap();
    }
    operator.sign_in(bob, 4).await;
    assert_eq!(digests(&mut operator, ada).await, [token(3), token(1), token(2)]);
}

pub async fn session_of_another_user_is_not_ended<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    let digest = operator.sign_in(ada, 1).await;
    assert!(!operator.accounts.end_session(bob, &digest.id(), &admin()).await.unwrap());
    operator.accounts.end_sessions(bob, None, &admin()).await.unwrap();
    assert!(operator.accounts.session(&digest).await.unwrap().is_some());
}

pub async fn all_other_sessions_are_ended<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    for seed in 1..=3 {
        operator.sign_in(ada, seed).await;
    }
    assert_eq!(operator.accounts.end_sessions(ada, Some(&token(2)), &admin()).await.unwrap(), 2);
    assert_eq!(digests(&mut operator, ada).await, [token(2)]);
    for ended in [1, 0] {
        assert_eq!(operator.accounts.end_sessions(ada, None, &admin()).await.unwrap(), ended);
    }
    assert_eq!(digests(&mut operator, ada).await, []);
}

pub async fn password_change_ends_other_sessions<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let (kept, _ended) = (operator.sign_in(ada, 1).await, operator.sign_in(ada, 2).await);
    operator.accounts.set_password(ada, "$new", Some(&kept), &admin()).await.unwrap();
    assert_eq!(operator.accounts.user(ada).await.unwrap().unwrap().password_hash, "$new");
    assert_eq!(digests(&mut operator, ada).await, [kept]);
    operator.accounts.set_password(ada, "$newer", None, &admin()).await.unwrap();
    assert_eq!(digests(&mut operator, ada).await, []);
}

pub async fn second_factor_change_ends_other_sessions<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    for totp in [Some(totp(1)), None] {
        let (kept, _ended) = (operator.sign_in(ada, 1).await, operator.sign_in(ada, 2).await);
        operator.accounts.set_totp(ada, totp.as_ref(), &[], Some(&kept), &admin()).await.unwrap();
        assert_eq!(digests(&mut operator, ada).await, [kept]);
        operator.accounts.end_sessions(ada, None, &admin()).await.unwrap();
    }
}

pub async fn second_factor_is_stored_and_removed<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let codes = [token(7), token(8)];
    operator.accounts.set_totp(ada, Some(&totp(5)), &codes, None, &admin()).await.unwrap();
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!((user.totp, user.recovery_codes), (Some(totp(5)), 2));
    operator.accounts.set_totp(ada, None, &[], None, &admin()).await.unwrap();
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!((user.totp, user.recovery_codes), (None, 0));
    assert!(!operator.accounts.use_recovery_code(ada, &codes[0], &admin()).await.unwrap());
}

pub async fn totp_step_is_used_once<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[], None, &admin()).await.unwrap();
    for (step, is_new) in [(5, false), (4, false), (6, true), (6, false), (8, true), (7, false)] {
        assert_eq!(operator.accounts.use_totp_step(ada, step).await.unwrap(), is_new, "step {step}");
    }
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!(user.totp, Some(totp(8)));
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
    for (n, mut accounts) in connections.into_iter().enumerate() {
        callers.spawn(async move {
            let is_new = match n % 2 {
                0 => accounts.use_totp_step(ada, 6).await,
                _ => accounts.use_recovery_code(ada, &token(7), &admin()).await,
            };
            is_new.unwrap()
        });
    }
    let results = callers.join_all().await;
    assert_eq!(results.iter().filter(|is_new| **is_new).count(), 2, "{results:?}");
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!((user.totp, user.recovery_codes), (Some(totp(6)), 0));
}

pub async fn totp_step_needs_a_second_factor<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    assert!(!operator.accounts.use_totp_step(ada, 6).await.unwrap());
    assert!(!operator.accounts.use_totp_step(UserId(ada.0 + 1), 6).await.unwrap());
}

pub async fn recovery_code_is_used_once<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7), token(8)], None, &admin()).await.unwrap();
    assert!(operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap());
    assert!(!operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap());
    assert!(!operator.accounts.use_recovery_code(ada, &token(9), &admin()).await.unwrap());
    assert_eq!(operator.accounts.user(ada).await.unwrap().unwrap().recovery_codes, 1);
}

pub async fn recovery_code_belongs_to_its_user<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    assert!(!operator.accounts.use_recovery_code(bob, &token(7), &admin()).await.unwrap());
    assert!(operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap());
}

pub async fn new_recovery_codes_replace_old_ones<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    operator.accounts.set_totp(ada, Some(&totp(6)), &[token(8), token(9)], None, &admin()).await.unwrap();
    assert!(!operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap());
    assert_eq!(operator.accounts.user(ada).await.unwrap().unwrap().recovery_codes, 2);
}

pub async fn sign_in_and_credentials_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.sign_in(ada, 1).await;
    operator.accounts.set_password(ada, "$new", None, &admin()).await.unwrap();
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap();
    operator.accounts.use_recovery_code(ada, &token(7), &admin()).await.unwrap();
    operator.accounts.record_failed_attempt(ada, &admin()).await.unwrap();
    operator.accounts.set_totp(ada, None, &[], None, &admin()).await.unwrap();
    let events = operator.events(&operator.workspace.clone()).await;
    let events: Vec<_> = events.iter().rev().take(6).rev().collect();
    let actions = [
        "user.signed_in",
        "user.password_changed",
        "user.totp_enabled",
        "user.recovery_code_used",
        "user.attempt_failed",
        "user.totp_disabled",
    ];
    for (event, action) in events.into_iter().zip(actions) {
        assert_eq!(event, &(action.to_owned(), "ada@example.com".to_owned()));
    }
}

pub async fn ended_sessions_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let (workspace, ids) = (operator.workspace.clone(), [1, 2, 3, 4].map(|seed| token(seed).id()));
    for seed in 1..=4 {
        operator.sign_in(ada, seed).await;
    }
    let before = operator.events(&workspace).await.len();
    for id in [&ids[0], &ids[0], "unknown"] {
        operator.accounts.end_session(ada, id, &admin()).await.unwrap();
    }
    for keep in [Some(&token(2)), Some(&token(2)), None, None] {
        operator.accounts.end_sessions(ada, keep, &admin()).await.unwrap();
    }
    let events = operator.events(&workspace).await;
    let ended = |number: u64| ("user.sessions_ended".to_owned(), format!("ada@example.com ({number})"));
    assert_eq!(events[before..], [ended(1), ended(2), ended(1)]);
}

/// Creates a user who is a member of the workspace.
async fn member<S: Administered>(store: Arc<S>) -> (Operator<S>, UserId) {
    let mut operator = Operator::open(store).await;
    let workspace = operator.workspace.clone();
    let user = operator.join("ada", &workspace, Role::Member).await;
    (operator, user)
}

fn totp(last_step: u64) -> Totp {
    Totp { secret: vec![7; 20], last_step }
}

async fn digests<S: Administered>(operator: &mut Operator<S>, user: UserId) -> Vec<TokenDigest> {
    let sessions = operator.accounts.sessions(user).await.unwrap();
    sessions.into_iter().map(|session| session.digest).collect()
}
