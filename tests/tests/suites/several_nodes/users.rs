//! Users who act on several nodes at once.

use enrich_store::users::{Link, LinkPurpose, Role, Totp, UserEmail, UserId};
use enrich_store::{Accounts, Actor, TokenDigest};
use enrich_tests::contract::START;
use tokio::task::JoinSet;

use super::world::{World, demo};

/// The number of connections that use the same secret at once.
const CALLERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn recovery_code_and_time_step_are_used_once() {
    let world = World::new().await;
    world.workspace(0).await;
    let digest = invite(&world, "ada@example.com", Role::Member).await;
    let (mut admin, operator) = (world.admin().await, Actor::operator(START));
    let user = admin.use_link(&digest, "$hash", &operator).await.unwrap().unwrap();
    let (totp, code) = (Totp { secret: vec![1; 20], last_step: 5 }, TokenDigest::of(b"code"));
    admin.set_totp(user, Some(&totp), &[code], None, &operator).await.unwrap();
    let used = at_once(&world, move |mut admin| async move {
        admin.use_recovery_code(user, &code, &Actor::operator(START)).await.unwrap()
    });
    assert_eq!(used.await, 1);
    let used = at_once(&world, move |mut admin| async move { admin.use_totp_step(user, 6).await.unwrap() });
    assert_eq!(used.await, 1);
    let user = admin.user(user).await.unwrap().unwrap();
    assert_eq!((user.recovery_codes, user.totp.map(|totp| totp.last_step)), (0, Some(6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_who_leave_at_once_leave_one_admin() {
    let world = World::new().await;
    world.workspace(0).await;
    let mut leaving = JoinSet::new();
    for n in 0..CALLERS {
        let digest = invite(&world, &format!("admin{n}@example.com"), Role::Admin).await;
        let (mut admin, operator) = (world.admin().await, Actor::operator(START));
        let user: UserId = admin.use_link(&digest, "$hash", &operator).await.unwrap().unwrap();
        leaving.spawn(async move {
            let admin_user = Actor { name: "admin@example.com", ..operator };
            if n % 2 == 0 {
                admin.remove_user(&demo(), user, &admin_user).await.is_ok()
            } else {
                admin.set_role(&demo(), user, Role::Member, &admin_user).await.is_ok()
            }
        });
    }
    leaving.join_all().await;
    let members = world.admin().await.users(Some(&demo())).await.unwrap();
    assert_eq!(members.iter().filter(|member| member.role == Role::Admin).count(), 1, "{members:?}");
}

/// Runs `work` on several connections at once, and returns how many calls returned `true`.
async fn at_once<F>(world: &World<'_>, work: impl Fn(Accounts) -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(work(world.admin().await));
    }
    callers.join_all().await.into_iter().filter(|is_used| *is_used).count()
}

/// Creates an invitation and returns the digest of its token.
async fn invite(world: &World<'_>, email: &str, role: Role) -> TokenDigest {
    let email: UserEmail = email.parse().unwrap();
    let digest = TokenDigest::of(email.as_str().as_bytes());
    let (purpose, created_by) = (LinkPurpose::Join(role), Actor::OPERATOR.to_owned());
    let expires_at = START + std::time::Duration::from_secs(60);
    let workspace = demo();
    let link = Link { digest, workspace, purpose, email, created_by, created_at: START, expires_at };
    world.admin().await.create_link(&link, &Actor::operator(START)).await.unwrap();
    digest
}
