//! Rules for one-time links: invitations to a workspace and links to set a new password.

use std::sync::Arc;

use enrich_lib::model::WorkspaceId;
use enrich_store::users::{Link, Role, Totp};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Actor, StoreError};
use tokio::task::JoinSet;

use super::operator::{Operator, admin, admin_at, after_seconds, email, join, reset, token};
use super::{Administered, START};

/// Generates the tests of the rules for links. `$open` returns a fresh store (`Arc<impl Administered>`).
#[macro_export]
macro_rules! links_contract {
    ($open:expr) => {
        $crate::rules! { links, $open,
            invitation_creates_a_user_with_its_role
            same_email_in_two_workspaces_is_two_users
            invitation_of_a_member_is_rejected
            invitation_to_an_unknown_workspace_is_rejected
            link_is_used_once
            link_is_used_once_by_concurrent_callers
            expired_link_is_unknown
            new_link_replaces_unused_link
            invitations_are_listed_until_they_are_used
            deleted_invitation_is_unknown
            invitation_is_deleted_in_its_workspace_only
            reset_sets_the_password_and_removes_the_second_factor
            reset_of_an_unknown_user_is_rejected
            removed_user_cannot_use_an_earlier_link
            link_of_a_deleted_workspace_is_rejected
            invitations_end_with_the_right_of_the_inviter
            invitations_end_with_the_password_of_the_inviter
        }
    };
}

pub async fn invitation_creates_a_user_with_its_role<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let invitation = join(token(1), &operator.workspace, Role::Member, "ada");
    operator.accounts.create_link(&invitation, &admin()).await.unwrap();
    assert_eq!(operator.accounts.link(&token(1), START).await.unwrap(), Some(invitation));
    let shop = operator.workspace.clone();
    assert_eq!(operator.accounts.user_by_email(&shop, &email("ada")).await.unwrap(), None);
    let actor = admin_at(after_seconds(5));
    let id = operator.accounts.use_link(&token(1), "$hash", &actor).await.unwrap().unwrap();
    let user = operator.accounts.user(id).await.unwrap().unwrap();
    assert_eq!((user.id, &user.email, user.password_hash.as_str()), (id, &email("ada"), "$hash"));
    assert_eq!((user.totp, user.recovery_codes, user.created_at), (None, 0, after_seconds(5)));
    assert_eq!((user.workspace, user.role), (shop, Role::Member));
}

pub async fn same_email_in_two_workspaces_is_two_users<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    let ada = operator.join("ada", &shop, Role::Member).await;
    let session = operator.sign_in(ada, 9).await;
    operator.accounts.create_link(&join(token(1), &other, Role::Admin, "ada"), &admin()).await.unwrap();
    let namesake = operator.accounts.use_link(&token(1), "$new", &admin()).await.unwrap().unwrap();
    assert_ne!(namesake, ada);
    for (id, workspace, role, hash) in
        [(ada, &shop, Role::Member, "$hash"), (namesake, &other, Role::Admin, "$new")]
    {
        let user = operator.user(id).await;
        assert_eq!((&user.workspace, user.role, user.password_hash.as_str()), (workspace, role, hash));
        assert_eq!(operator.accounts.user_by_email(workspace, &email("ada")).await.unwrap(), Some(user));
    }
    // A link of one workspace changes nothing in the other, and is no event there.
    operator.accounts.create_link(&reset(token(2), &other, "ada"), &admin()).await.unwrap();
    operator.accounts.use_link(&token(2), "$newer", &admin()).await.unwrap();
    operator.accounts.remove_user(&other, namesake, &Actor::operator(START)).await.unwrap();
    assert_eq!(operator.user(ada).await.password_hash, "$hash");
    assert!(operator.accounts.session(&session).await.unwrap().is_some());
    assert_eq!(operator.last_event().await.0, "user.signed_in");
}

pub async fn invitation_of_a_member_is_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("ada", &shop, Role::Member).await;
    let invited = operator.accounts.create_link(&join(token(1), &shop, Role::Admin, "ada"), &admin()).await;
    assert!(matches!(invited, Err(StoreError::AlreadyMember(id)) if id == shop));
    assert_eq!(operator.accounts.link(&token(1), START).await.unwrap(), None);
}

pub async fn invitation_to_an_unknown_workspace_is_rejected<S: Administered>(store: Arc<S>) {
    let mut accounts = store.accounts().await;
    let unknown: WorkspaceId = "unknown".parse().unwrap();
    let invited = accounts.create_link(&join(token(1), &unknown, Role::Admin, "ada"), &admin()).await;
    assert!(matches!(invited, Err(StoreError::UnknownWorkspace(id)) if id == unknown));
}

pub async fn link_is_used_once<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let invitation = join(token(1), &operator.workspace, Role::Member, "ada");
    operator.accounts.create_link(&invitation, &admin()).await.unwrap();
    assert!(operator.accounts.use_link(&token(1), "$hash", &admin()).await.unwrap().is_some());
    assert_eq!(operator.accounts.use_link(&token(1), "$other", &admin()).await.unwrap(), None);
    assert_eq!(operator.accounts.link(&token(1), START).await.unwrap(), None);
    let shop = operator.workspace.clone();
    let user = operator.accounts.user_by_email(&shop, &email("ada")).await.unwrap().unwrap();
    assert_eq!(user.password_hash, "$hash");
}

pub async fn link_is_used_once_by_concurrent_callers<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store.clone()).await;
    let invitation = join(token(1), &operator.workspace, Role::Member, "ada");
    operator.accounts.create_link(&invitation, &admin()).await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let mut accounts = store.accounts().await;
        callers.spawn(async move { accounts.use_link(&token(1), "$hash", &admin()).await.unwrap() });
    }
    let users = callers.join_all().await;
    assert_eq!(users.iter().flatten().count(), 1, "{users:?}");
}

pub async fn expired_link_is_unknown<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let invitation = join(token(1), &shop, Role::Member, "ada");
    operator.accounts.create_link(&invitation, &admin()).await.unwrap();
    let expiry = invitation.expires_at;
    assert_eq!(operator.accounts.link(&token(1), expiry).await.unwrap(), None);
    assert_eq!(operator.accounts.invitations(&shop, expiry).await.unwrap(), []);
    assert_eq!(operator.accounts.use_link(&token(1), "$hash", &admin_at(expiry)).await.unwrap(), None);
    assert_eq!(operator.accounts.users(None).await.unwrap(), []);
}

pub async fn new_link_replaces_unused_link<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    operator.join("bob", &shop, Role::Admin).await;
    for link in [
        join(token(1), &shop, Role::Member, "ada"),
        join(token(2), &other, Role::Member, "ada"),
        reset(token(3), &shop, "bob"),
        join(token(4), &shop, Role::Admin, "ada"),
        reset(token(5), &shop, "bob"),
    ] {
        operator.accounts.create_link(&link, &admin()).await.unwrap();
    }
    let mut is_usable = Vec::new();
    for seed in 1..=5 {
        is_usable.push(operator.accounts.link(&token(seed), START).await.unwrap().is_some());
    }
    assert_eq!(is_usable, [false, true, false, true, true]);
}

pub async fn invitations_are_listed_until_they_are_used<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("cleo", &shop, Role::Admin).await;
    let mut first = join(token(1), &shop, Role::Member, "ada");
    first.created_at = after_seconds(1);
    let mut second = join(token(2), &shop, Role::Admin, "bob");
    second.created_at = after_seconds(2);
    let reset = reset(token(3), &shop, "cleo");
    for link in [&second, &first, &reset] {
        operator.accounts.create_link(link, &admin()).await.unwrap();
    }
    let now = after_seconds(3);
    assert_eq!(operator.accounts.invitations(&shop, now).await.unwrap(), [second, first.clone()]);
    operator.accounts.use_link(&token(2), "$hash", &admin()).await.unwrap();
    assert_eq!(operator.accounts.invitations(&shop, now).await.unwrap(), [first]);
}

pub async fn deleted_invitation_is_unknown<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.accounts.create_link(&join(token(1), &shop, Role::Member, "ada"), &admin()).await.unwrap();
    assert!(operator.accounts.delete_invitation(&shop, &token(1).id(), &admin()).await.unwrap());
    assert!(!operator.accounts.delete_invitation(&shop, &token(1).id(), &admin()).await.unwrap());
    assert_eq!(operator.accounts.use_link(&token(1), "$hash", &admin()).await.unwrap(), None);
}

pub async fn invitation_is_deleted_in_its_workspace_only<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    operator.accounts.create_link(&join(token(1), &shop, Role::Member, "ada"), &admin()).await.unwrap();
    assert!(!operator.accounts.delete_invitation(&other, &token(1).id(), &admin()).await.unwrap());
    assert!(operator.accounts.link(&token(1), START).await.unwrap().is_some());
}

pub async fn reset_sets_the_password_and_removes_the_second_factor<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Member).await;
    let totp = Totp { secret: vec![7; 20], last_step: 3 };
    operator.accounts.set_totp(ada, Some(&totp), &[token(8)], None, &admin()).await.unwrap();
    let session = operator.sign_in(ada, 9).await;
    operator.accounts.create_link(&reset(token(1), &shop, "ada"), &admin()).await.unwrap();
    // Creating the link ends the sessions, and changes nothing else yet.
    assert_eq!(operator.accounts.session(&session).await.unwrap(), None);
    assert_eq!(operator.user(ada).await.totp, Some(totp));
    let session = operator.sign_in(ada, 10).await;
    assert_eq!(operator.accounts.use_link(&token(1), "$new", &admin()).await.unwrap(), Some(ada));
    let user = operator.accounts.user(ada).await.unwrap().unwrap();
    assert_eq!((user.password_hash.as_str(), user.totp, user.recovery_codes), ("$new", None, 0));
    assert_eq!(operator.accounts.session(&session).await.unwrap(), None);
    let events = operator.accounts.audit_log(&shop, None, 1).await.unwrap();
    assert_eq!(
        (events[0].action.as_str(), events[0].actor.as_str()),
        ("user.password_changed", "ada@example.com")
    );
}

pub async fn reset_of_an_unknown_user_is_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let other = operator.create_workspace("other").await;
    operator.join("ada", &other, Role::Member).await;
    let created = operator.accounts.create_link(&reset(token(1), &shop, "ada"), &admin()).await;
    assert!(matches!(created, Err(StoreError::UnknownUser)));
}

pub async fn removed_user_cannot_use_an_earlier_link<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Member).await;
    operator.accounts.create_link(&reset(token(1), &shop, "ada"), &admin()).await.unwrap();
    operator.accounts.remove_user(&shop, ada, &admin()).await.unwrap();
    assert_eq!(operator.accounts.use_link(&token(1), "$hash", &admin()).await.unwrap(), None);
}

pub async fn link_of_a_deleted_workspace_is_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.accounts.create_link(&join(token(1), &shop, Role::Member, "ada"), &admin()).await.unwrap();
    operator.accounts.change_workspace(&shop, &[WorkspaceChange::Deleted], &admin()).await.unwrap();
    let used = operator.accounts.use_link(&token(1), "$hash", &admin()).await;
    assert!(matches!(used, Err(StoreError::WorkspaceDeleted(id)) if id == shop));
}

pub async fn invitations_end_with_the_password_of_the_inviter<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    let ada = operator.join("ada", &shop, Role::Admin).await;
    for change in ["password", "reset link", "reset"] {
        let reset_link = async |operator: &mut Operator<S>| {
            operator.accounts.create_link(&reset(token(9), &shop, "ada"), &admin()).await.unwrap();
        };
        if change == "reset" {
            reset_link(&mut operator).await;
        }
        for (seed, by) in [(1, "ada@example.com"), (2, "operator")] {
            let invitation = join(token(seed), &shop, Role::Admin, &format!("guest{seed}"));
            let link = Link { created_by: by.to_owned(), ..invitation };
            operator.accounts.create_link(&link, &admin()).await.unwrap();
        }
        match change {
            "password" => operator.accounts.set_password(ada, "$new", None, &admin()).await.unwrap(),
            "reset link" => reset_link(&mut operator).await,
            _ => drop(operator.accounts.use_link(&token(9), "$new", &admin()).await.unwrap().unwrap()),
        }
        assert_eq!(operator.accounts.link(&token(1), START).await.unwrap(), None, "{change}");
        assert!(operator.accounts.link(&token(2), START).await.unwrap().is_some(), "{change}");
        let event = ("member.invitation_revoked".to_owned(), "guest1@example.com".to_owned());
        let events = operator.events(&shop).await;
        assert!(events.iter().rev().take(2).any(|last| *last == event), "{change}: {events:?}");
    }
}

pub async fn invitations_end_with_the_right_of_the_inviter<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let shop = operator.workspace.clone();
    operator.join("bob", &shop, Role::Admin).await;
    let ada = operator.join("ada", &shop, Role::Admin).await;
    let invite = async |operator: &mut Operator<S>, seed, by: &str, invited: &str| {
        let link = Link { created_by: by.to_owned(), ..join(token(seed), &shop, Role::Admin, invited) };
        operator.accounts.create_link(&link, &admin()).await.unwrap();
    };
    invite(&mut operator, 1, "bob@example.com", "cleo").await;
    for (seed, is_removed) in [(2, false), (3, true)] {
        operator.accounts.set_role(&shop, ada, Role::Admin, &admin()).await.unwrap();
        invite(&mut operator, seed, "ada@example.com", "dan").await;
        if is_removed {
            operator.accounts.remove_user(&shop, ada, &admin()).await.unwrap();
        } else {
            operator.accounts.set_role(&shop, ada, Role::Member, &admin()).await.unwrap();
        }
        assert_eq!(operator.accounts.use_link(&token(seed), "$hash", &admin()).await.unwrap(), None);
        let event = ("member.invitation_revoked".to_owned(), "dan@example.com".to_owned());
        assert_eq!(operator.last_event().await, event);
    }
    assert!(operator.accounts.use_link(&token(1), "$hash", &admin()).await.unwrap().is_some());
}
