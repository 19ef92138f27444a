//! Rules for users, members and the audit log.

use std::sync::Arc;

use enrich_store::records::NewKey;
use enrich_store::users::{AuditEvent, Link, Role, Totp, USERS_MAX, UserEmail, UserId};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Actor, Authority, StoreError, TokenDigest};

use super::operator::{Operator, admin, after_seconds, join, key, reset, today, token};
use super::{Administered, START};

/// Generates the tests of the rules for users and members. `$open` returns a fresh store
/// (`Arc<impl Administered>`).
#[macro_export]
macro_rules! users_contract {
    ($open:expr) => {
        $crate::rules! { users, $open,
            users_are_listed_by_email
            email_identifies_a_user_in_any_case
            last_activity_is_kept_after_the_session
            role_can_be_changed
            last_admin_cannot_be_removed
            last_admin_cannot_become_a_member
            concurrent_removals_leave_an_admin
            changes_of_other_users_are_rejected
            removed_user_is_unknown_and_its_keys_stay_valid
            changes_of_members_are_in_the_audit_log
            changes_in_a_deleted_workspace_are_rejected
            change_requires_the_session_and_the_role_of_its_author
            admin_gives_up_its_own_right
            number_of_users_and_invitations_is_limited
            audit_log_is_read_in_pages
        }
    };
}

pub async fn users_are_listed_by_email<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    let bob = operator.join("bob", &shop, Role::Member).await;
    let ada = operator.join("ada", &shop, Role::Admin).await;
    let cleo = operator.join("cleo", &other, Role::Member).await;
    for (workspace, expected) in
        [(None, &[cleo, ada, bob][..]), (Some(&shop), &[ada, bob]), (Some(&other), &[cleo])]
    {
        let users = operator.accounts.users(workspace).await.unwrap();
        assert_eq!(users.iter().map(|user| user.id).collect::<Vec<_>>(), expected);
    }
    assert_eq!(operator.accounts.user(UserId(ada.0 + bob.0 + cleo.0)).await.unwrap(), None);
}

pub async fn email_identifies_a_user_in_any_case<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    let ada = operator.join("ada", &shop, Role::Member).await;
    let email: UserEmail = "ADA@Example.com".parse().unwrap();
    let found = operator.accounts.user_by_email(&shop, &email).await.unwrap();
    assert_eq!(found.map(|user| user.id), Some(ada));
    for workspace in [other, "unknown".parse().unwrap()] {
        assert_eq!(operator.accounts.user_by_email(&workspace, &email).await.unwrap(), None);
    }
}

pub async fn last_activity_is_kept_after_the_session<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let bob = operator.join("bob", &shop, Role::Member).await;
    assert_eq!(operator.user(bob).await.last_seen_at, None);
    let session = operator.sign_in(bob, 1).await;
    operator.accounts.touch_session(&session, after_seconds(9)).await.unwrap();
    operator.accounts.end_sessions(bob, None, &admin()).await.unwrap();
    assert_eq!(operator.user(bob).await.last_seen_at, Some(after_seconds(9)));
}

pub async fn role_can_be_changed<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("ada", &shop, Role::Admin).await;
    let bob = operator.join("bob", &shop, Role::Member).await;
    for role in [Role::Admin, Role::Member] {
        operator.accounts.set_role(&shop, bob, role, &admin()).await.unwrap();
        assert_eq!(operator.user(bob).await.role, role);
    }
}

pub async fn last_admin_cannot_be_removed<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Admin).await;
    operator.join("bob", &shop, Role::Member).await;
    let removed = operator.accounts.remove_user(&shop, ada, &admin()).await;
    assert!(matches!(removed, Err(StoreError::LastAdmin(id)) if id == shop));
    let cleo = operator.join("cleo", &shop, Role::Admin).await;
    operator.accounts.remove_user(&shop, ada, &admin()).await.unwrap();
    operator.accounts.remove_user(&shop, cleo, &Actor::operator(START)).await.unwrap();
}

pub async fn last_admin_cannot_become_a_member<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Admin).await;
    let changed = operator.accounts.set_role(&shop, ada, Role::Member, &admin()).await;
    assert!(matches!(changed, Err(StoreError::LastAdmin(id)) if id == shop));
    operator.accounts.set_role(&shop, ada, Role::Admin, &admin()).await.unwrap();
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

/// Returns the admins of the operator's workspace.
async fn admins<S>(operator: &mut Operator<S>) -> Vec<UserId> {
    let users = operator.accounts.users(Some(&operator.workspace)).await.unwrap();
    users.iter().filter(|user| user.role == Role::Admin).map(|user| user.id).collect()
}

pub async fn changes_of_other_users_are_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    let ada = operator.join("ada", &other, Role::Member).await;
    for user in [ada, UserId(ada.0 + 1)] {
        let changed = operator.accounts.set_role(&shop, user, Role::Admin, &admin()).await;
        assert!(matches!(changed, Err(StoreError::UnknownUser)));
        let removed = operator.accounts.remove_user(&shop, user, &admin()).await;
        assert!(matches!(removed, Err(StoreError::UnknownUser)));
    }
    let unknown = UserId(ada.0 + 1);
    for result in [
        operator.accounts.set_password(unknown, "$new", None, &admin()).await,
        operator.accounts.set_totp(unknown, None, &[], None, &admin()).await,
    ] {
        assert!(matches!(result, Err(StoreError::UnknownUser)), "{result:?}");
    }
}

pub async fn removed_user_is_unknown_and_its_keys_stay_valid<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Admin).await;
    operator.create_key(&key(1), None).await;
    let totp = Totp { secret: vec![7; 20], last_step: 3 };
    operator.accounts.set_totp(ada, Some(&totp), &[token(8)], None, &admin()).await.unwrap();
    let session = operator.sign_in(ada, 1).await;
    operator.accounts.remove_user(&shop, ada, &Actor::operator(START)).await.unwrap();
    assert_eq!(operator.accounts.user(ada).await.unwrap(), None);
    assert_eq!(operator.accounts.users(None).await.unwrap(), []);
    assert_eq!(operator.accounts.session(&session).await.unwrap(), None);
    assert!(operator.accepts(&key(1), START).await);
    assert_eq!(operator.last_event().await, ("member.removed".to_owned(), "ada@example.com".to_owned()));
    let again = operator.join("ada", &shop, Role::Member).await;
    assert_ne!(again, ada, "the number of a deleted user is not used again");
    assert_eq!(operator.accounts.user(again).await.unwrap().unwrap().totp, None);
}

pub async fn changes_of_members_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Admin).await;
    let events = operator.accounts.audit_log(&shop, None, 2).await.unwrap();
    assert_eq!(events[0].actor, "ada@example.com", "the user is the author");
    let bob = join(token(1), &shop, Role::Member, "bob");
    operator.accounts.create_link(&bob, &admin()).await.unwrap();
    operator.accounts.delete_invitation(&shop, &token(1).id(), &admin()).await.unwrap();
    let cleo = operator.join("cleo", &shop, Role::Member).await;
    for role in [Role::Admin, Role::Admin] {
        operator.accounts.set_role(&shop, cleo, role, &admin()).await.unwrap();
    }
    operator.accounts.remove_user(&shop, ada, &admin()).await.unwrap();
    let events = operator.events(&shop).await;
    let events: Vec<_> = events.iter().map(|(action, subject)| (action.as_str(), subject.as_str())).collect();
    let expected = [
        ("workspace.created", "shop"),
        ("credits.granted", "100"),
        ("member.invited", "ada@example.com (admin)"),
        ("member.joined", "ada@example.com (admin)"),
        ("member.invited", "bob@example.com (member)"),
        ("member.invitation_revoked", "bob@example.com"),
        ("member.invited", "cleo@example.com (member)"),
        ("member.joined", "cleo@example.com (member)"),
        ("member.role_changed", "cleo@example.com (admin)"),
        ("member.removed", "ada@example.com"),
    ];
    assert_eq!(events, expected);
}

pub async fn changes_in_a_deleted_workspace_are_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("ada", &shop, Role::Admin).await;
    let bob = operator.join("bob", &shop, Role::Member).await;
    operator.accounts.change_workspace(&shop, &[WorkspaceChange::Deleted], &admin()).await.unwrap();
    for result in [
        operator.accounts.set_role(&shop, bob, Role::Admin, &admin()).await,
        operator.accounts.remove_user(&shop, bob, &admin()).await,
    ] {
        assert!(matches!(result, Err(StoreError::WorkspaceDeleted(_))), "{result:?}");
    }
    operator.accounts.remove_user(&shop, bob, &Actor::operator(START)).await.unwrap();
}

pub async fn change_requires_the_session_and_the_role_of_its_author<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    let ada = operator.join("ada", &shop, Role::Admin).await;
    operator.join("bob", &shop, Role::Admin).await;
    let stranger = operator.join("eve", &other, Role::Admin).await;
    let (session, foreign) = (operator.sign_in(ada, 1).await, operator.sign_in(stranger, 2).await);
    let as_role = |session, is_admin| Actor { authority: Some(Authority { session, is_admin }), ..admin() };
    let (admin_actor, member_actor) = (as_role(&session, true), as_role(&session, false));
    let mut seed = 10;
    let mut create = async |operator: &mut Operator<S>, actor: &Actor<'_>| {
        seed += 1;
        let key = key(seed);
        let is_created = operator.accounts.create_key(&NewKey::new(&shop, "till", &key), actor).await;
        let invited = join(token(seed), &shop, Role::Member, "cleo");
        let is_invited = operator.accounts.create_link(&invited, actor).await;
        for result in [is_created.map(drop), is_invited] {
            match result {
                Ok(()) => {}
                Err(StoreError::NotAllowed) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    };
    assert!(create(&mut operator, &admin_actor).await);
    assert!(!create(&mut operator, &as_role(&foreign, false)).await, "a session of another workspace");
    operator.accounts.set_role(&shop, ada, Role::Member, &admin()).await.unwrap();
    assert!(!create(&mut operator, &admin_actor).await);
    assert!(create(&mut operator, &member_actor).await);
    operator.accounts.end_sessions(ada, None, &admin()).await.unwrap();
    let before = operator.events(&shop).await;
    assert!(!create(&mut operator, &member_actor).await);
    assert_eq!(operator.events(&shop).await, before, "a refused change leaves no event");
    let keys = operator.accounts.keys(&shop, today()).await.unwrap();
    assert_eq!(keys.len(), 2, "a refused change leaves nothing");
}

pub async fn admin_gives_up_its_own_right<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("bob", &shop, Role::Admin).await;
    for seed in [1, 2] {
        let ada = operator.join("ada", &shop, Role::Admin).await;
        let session = operator.sign_in(ada, seed).await;
        let own = Actor { authority: Some(Authority { session: &session, is_admin: true }), ..admin() };
        if seed == 1 {
            operator.accounts.set_role(&shop, ada, Role::Member, &own).await.unwrap();
            let again = operator.accounts.set_role(&shop, ada, Role::Admin, &own).await;
            assert!(matches!(again, Err(StoreError::NotAllowed)), "{again:?}");
            operator.accounts.remove_user(&shop, ada, &admin()).await.unwrap();
        } else {
            operator.accounts.remove_user(&shop, ada, &own).await.unwrap();
        }
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
}

pub async fn audit_log_is_read_in_pages<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    for n in 0..5 {
        operator.accounts.grant(&shop, n + 1, START).await.unwrap();
        operator.accounts.grant(&other, 100, START).await.unwrap();
    }
    let all = operator.accounts.audit_log(&shop, None, 100).await.unwrap();
    assert_eq!(all.len(), 7);
    assert!(all.windows(2).all(|pair| pair[0].number > pair[1].number));
    let mut pages = Vec::new();
    while let page = operator.accounts.audit_log(&shop, pages.last().map(number), 3).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 3);
        pages.extend(page);
    }
    assert_eq!(pages, all);
}

fn number(event: &AuditEvent) -> i64 {
    event.number
}
