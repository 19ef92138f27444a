//! Rules for passwords, second factors and sessions.

use std::sync::Arc;

use enrich_store::users::{Renewal, Role, SESSIONS_MAX, Session, Totp, UserId};
use enrich_store::{Actor, Authority, StoreError, TokenDigest};
use tokio::task::JoinSet;

use super::operator::{Operator, admin, admin_at, after_seconds, reset, session, token};
use super::{Administered, START};

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
            number_of_sessions_is_limited
            sessions_are_listed_last_used_first
            session_of_another_user_is_not_ended
            all_other_sessions_are_ended
            new_credentials_end_other_sessions_and_renew_that_of_the_change
            verified_credentials_must_be_current
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
    operator.accounts.renew_session(&Renewal { old: digest, new }, now).await.unwrap();
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), None);
    let renewed = Session { digest: new, authenticated_at: now, last_seen_at: now, ..session(ada, 1) };
    assert_eq!(operator.accounts.session(&new).await.unwrap(), Some(renewed));
}

pub async fn use_of_an_ended_session_does_nothing<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let digest = operator.sign_in(ada, 1).await;
    operator.accounts.end_sessions(ada, None, &admin()).await.unwrap();
    operator.accounts.touch_session(&digest, after_seconds(5)).await.unwrap();
    let renewal = Renewal { old: digest, new: token(2) };
    let renewed = operator.accounts.renew_session(&renewal, after_seconds(5)).await;
    assert!(matches!(renewed, Err(StoreError::NotAllowed)), "{renewed:?}");
    assert_eq!(operator.accounts.session(&token(2)).await.unwrap(), None);
    assert_eq!(operator.accounts.session(&digest).await.unwrap(), None);
}

pub async fn new_session_removes_idle_sessions<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let (idle, used) = (operator.sign_in(ada, 1).await, operator.sign_in(ada, 2).await);
    operator.accounts.touch_session(&used, after_seconds(60)).await.unwrap();
    let new = Session { last_seen_at: after_seconds(90), ..session(ada, 3) };
    let user = operator.user(ada).await;
    assert!(operator.accounts.begin_session(&new, &user, after_seconds(60), &admin()).await.unwrap());
    assert_eq!(operator.accounts.session(&idle).await.unwrap(), None);
    assert!(operator.accounts.session(&used).await.unwrap().is_some());
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

pub async fn new_credentials_end_other_sessions_and_renew_that_of_the_change<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    for seed in (0..9).step_by(3) {
        let (own, _other) = (operator.sign_in(ada, seed).await, operator.sign_in(ada, seed + 1).await);
        let renewal = Renewal { old: own, new: token(seed + 2) };
        let authority = Some(Authority { session: &own, is_admin: false });
        let actor = Actor { authority, ..admin_at(after_seconds(5)) };
        match seed {
            0 => operator.accounts.set_password(ada, "$new", Some(&renewal), &actor).await,
            3 => operator.accounts.set_totp(ada, Some(&totp(1)), &[], Some(&renewal), &actor).await,
            _ => operator.accounts.set_totp(ada, None, &[], Some(&renewal), &actor).await,
        }
        .unwrap();
        let times = (START, after_seconds(5));
        let sessions = operator.accounts.sessions(ada).await.unwrap();
        let renewed: Vec<_> =
            sessions.iter().map(|s| (s.digest, (s.created_at, s.authenticated_at))).collect();
        assert_eq!(renewed, [(renewal.new, times)]);
        // Another change of the same session, which was in progress.
        let late = operator.accounts.set_password(ada, "$late", Some(&renewal), &actor).await;
        assert!(matches!(late, Err(StoreError::NotAllowed)), "{late:?}");
        operator.accounts.set_password(ada, "$new", None, &admin()).await.unwrap();
        assert_eq!(digests(&mut operator, ada).await, []);
    }
    assert_eq!(operator.user(ada).await.password_hash, "$new");
}

/// A user is read, and the password or a code is verified. Meanwhile, another request changes the user.
pub async fn verified_credentials_must_be_current<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let changes = ["nothing", "password", "other-factor", "no-factor", "reset", "removed"];
    for (seed, change) in (20..).zip(changes) {
        let ada = operator.join(change, &shop, Role::Member).await;
        operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
        let verified = operator.user(ada).await;
        let other = Totp { secret: vec![8; 20], last_step: 0 };
        match change {
            "password" => operator.accounts.set_password(ada, "$new", None, &admin()).await.unwrap(),
            "other-factor" => {
                operator.accounts.set_totp(ada, Some(&other), &[token(7)], None, &admin()).await.unwrap();
            }
            "no-factor" => operator.accounts.set_totp(ada, None, &[token(7)], None, &admin()).await.unwrap(),
            "reset" => {
                operator.accounts.create_link(&reset(token(1), &shop, change), &admin()).await.unwrap();
                operator.accounts.use_link(&token(1), "$new", &admin()).await.unwrap();
            }
            "removed" => operator.accounts.remove_user(&shop, ada, &Actor::operator(START)).await.unwrap(),
            _ => {}
        }
        let before = operator.events(&shop).await.len();
        let is_current = change == "nothing";
        assert_eq!(operator.accounts.use_totp_step(&verified, 6).await.unwrap(), is_current, "{change}");
        let used = operator.accounts.use_recovery_code(&verified, &token(7), &admin()).await.unwrap();
        assert_eq!(used, is_current, "{change}");
        let session = session(ada, seed);
        let begun = operator.accounts.begin_session(&session, &verified, START, &admin()).await.unwrap();
        assert_eq!(begun, is_current, "{change}");
        assert_eq!(operator.accounts.session(&session.digest).await.unwrap().is_some(), is_current);
        let events = operator.events(&shop).await.len() - before;
        assert_eq!(events, if is_current { 2 } else { 0 }, "{change}");
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
    assert!(!use_code(&mut operator, ada, &codes[0]).await);
}

pub async fn totp_step_is_used_once<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[], None, &admin()).await.unwrap();
    for (step, is_new) in [(5, false), (4, false), (6, true), (6, false), (8, true), (7, false)] {
        assert_eq!(use_step(&mut operator, ada, step).await, is_new, "step {step}");
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

pub async fn totp_step_needs_a_second_factor<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    assert!(!use_step(&mut operator, ada, 6).await);
}

pub async fn recovery_code_is_used_once<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7), token(8)], None, &admin()).await.unwrap();
    assert!(use_code(&mut operator, ada, &token(7)).await);
    assert!(!use_code(&mut operator, ada, &token(7)).await);
    assert!(!use_code(&mut operator, ada, &token(9)).await);
    assert_eq!(operator.accounts.user(ada).await.unwrap().unwrap().recovery_codes, 1);
}

pub async fn recovery_code_belongs_to_its_user<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    assert!(!use_code(&mut operator, bob, &token(7)).await);
    assert!(use_code(&mut operator, ada, &token(7)).await);
}

pub async fn new_recovery_codes_replace_old_ones<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    operator.accounts.set_totp(ada, Some(&totp(6)), &[token(8), token(9)], None, &admin()).await.unwrap();
    assert!(!use_code(&mut operator, ada, &token(7)).await);
    assert_eq!(operator.accounts.user(ada).await.unwrap().unwrap().recovery_codes, 2);
}

pub async fn sign_in_and_credentials_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let (mut operator, ada) = member(store).await;
    operator.sign_in(ada, 1).await;
    operator.accounts.set_password(ada, "$new", None, &admin()).await.unwrap();
    operator.accounts.set_totp(ada, Some(&totp(5)), &[token(7)], None, &admin()).await.unwrap();
    use_code(&mut operator, ada, &token(7)).await;
    use_code(&mut operator, ada, &token(7)).await;
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

async fn use_step<S: Administered>(operator: &mut Operator<S>, user: UserId, step: u64) -> bool {
    let user = operator.user(user).await;
    operator.accounts.use_totp_step(&user, step).await.unwrap()
}

async fn use_code<S: Administered>(operator: &mut Operator<S>, user: UserId, code: &TokenDigest) -> bool {
    let user = operator.user(user).await;
    operator.accounts.use_recovery_code(&user, code, &admin()).await.unwrap()
}

fn totp(last_step: u64) -> Totp {
    Totp { secret: vec![7; 20], last_step }
}

async fn digests<S: Administered>(operator: &mut Operator<S>, user: UserId) -> Vec<TokenDigest> {
    let sessions = operator.accounts.sessions(user).await.unwrap();
    sessions.into_iter().map(|session| session.digest).collect()
}
