//! Requests whose right ends while they are in progress. Such a request changes nothing, like one that was
//! sent after the change.

use std::sync::{Arc, Mutex};

use enrich_sqlite::DataDir;
use enrich_store::records::KeyRow;
use enrich_store::usage::Day;
use enrich_store::users::{Link, LinkPurpose, Role, Session, Totp, User, UserId};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor};

use super::guards::ROWS;
use super::site::{SHOP, id};
use super::world::{ADA, BOB, Kind, World, result};

/// What ends a right of Ada, an admin.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    SessionsEnded,
    PasswordChanged,
    SecondFactorChanged,
    PasswordReset,
    Removed,
    Demoted,
    WorkspaceDeleted,
    LinksWithdrawn,
}

impl Change {
    async fn apply(self, accounts: &mut Accounts, actor: &Actor<'_>) {
        let shop = id(SHOP);
        let ada = user(accounts, ADA).await;
        let link = |purpose, email: &str| {
            let token = enrich_console::Token::generate();
            token.link(shop.clone(), purpose, email.parse().unwrap(), actor)
        };
        let done = match self {
            Self::Nothing => Ok(()),
            Self::SessionsEnded => accounts.end_sessions(ada, None, actor).await.map(drop),
            Self::PasswordChanged => accounts.set_password(ada, "$new", None, actor).await,
            Self::SecondFactorChanged => {
                let totp = Totp { secret: vec![7; 20], last_step: 0 };
                accounts.set_totp(ada, Some(&totp), &[], None, actor).await
            }
            Self::PasswordReset => {
                let link = link(LinkPurpose::Reset, ADA);
                accounts.create_link(&link, actor).await.unwrap();
                accounts.use_link(&link.digest, "$new", actor).await.map(drop)
            }
            Self::Removed => accounts.remove_user(&shop, ada, actor).await,
            Self::Demoted => accounts.set_role(&shop, ada, Role::Member, actor).await,
            Self::WorkspaceDeleted => {
                accounts.change_workspace(&shop, &[WorkspaceChange::Deleted], actor).await.map(drop)
            }
            Self::LinksWithdrawn => {
                let reset = link(LinkPurpose::Reset, BOB);
                accounts.create_link(&reset, actor).await.unwrap();
                let open = accounts.invitations(&shop, actor.now).await.unwrap();
                accounts.delete_invitation(&shop, &open[0].digest.id(), actor).await.map(drop)
            }
        };
        done.unwrap();
    }
}

async fn user(accounts: &mut Accounts, email: &str) -> UserId {
    accounts.user_by_email(&id(SHOP), &email.parse().unwrap()).await.unwrap().unwrap().id
}

/// When the right ends.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After the head was received and the session was read, when the request is counted.
    Counted,
    /// After the request was counted, when the body is awaited.
    Body,
}

/// What the accounts contain, except the audit log.
#[derive(PartialEq, Eq)]
struct State {
    users: Vec<User>,
    sessions: Vec<Session>,
    keys: Vec<KeyRow>,
    invitations: Vec<Link>,
}

impl State {
    async fn read(accounts: &mut Accounts, actor: &Actor<'_>) -> Self {
        let shop = id(SHOP);
        let users = accounts.users(None).await.unwrap();
        let mut sessions = Vec::new();
        for user in &users {
            sessions.extend(accounts.sessions(user.id).await.unwrap());
        }
        let keys = accounts.keys(&shop, Day::from_timestamp(actor.now)).await.unwrap();
        let invitations = accounts.invitations(&shop, actor.now).await.unwrap();
        Self { users, sessions, keys, invitations }
    }
}

async fn world(kind: Kind) -> World {
    let world = World::new(kind).await;
    world.site.join(SHOP, "boss@example.com", Role::Admin).await; // Ada is not the last admin
    world
}

fn open(dir: &DataDir) -> Accounts {
    enrich_sqlite::accounts(dir).unwrap()
}

fn is_refusal(result: &str) -> bool {
    !["go", "200"].contains(&result)
}

/// The kind of request for which a change is made, and which would be admitted.
fn kind_of(route: &str) -> Kind {
    if route.ends_with("/sign-in/code") { Kind::Pending } else { Kind::Admin }
}

/// The routes that change something, with their forms.
fn changes() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let posts = ROWS.iter().filter_map(|(route, form, _)| Some((route.strip_prefix("POST ")?, *form)));
    posts.map(|(route, form)| (route, form, kind_of(route)))
}

/// Returns the routes whose requests are refused after a change.
async fn refused_after(change: Change) -> Vec<(&'static str, &'static str, Kind)> {
    let (mut refused, mut changed) = (Vec::new(), None);
    for (route, form, kind) in changes() {
        let world = match changed.take() {
            Some((world, its_kind)) if its_kind == kind => world,
            _ => {
                let world = world(kind).await;
                let actor = Actor::operator(world.site.now());
                change.apply(&mut open(&world.site.dir), &actor).await;
                world
            }
        };
        if is_refusal(&result(&world.send("POST", &world.path(route), form).await)) {
            refused.push((route, form, kind));
            changed = Some((world, kind)); // a refused request changes nothing
        }
    }
    refused
}

/// Returns whether the change was made while the request was in progress, and the result of the request, or
/// what is wrong.
async fn send_late(
    change: Change,
    moment: Moment,
    (route, form, kind): (&str, &str, Kind),
) -> Result<bool, String> {
    let world = world(kind).await;
    let (dir, actor) = (world.site.dir.clone(), Actor::operator(world.site.now()));
    let changed = Arc::new(Mutex::new(None));
    let changing = {
        let changed = changed.clone();
        async move {
            let mut accounts = open(&dir);
            change.apply(&mut accounts, &actor).await;
            let state = State::read(&mut accounts, &actor).await;
            *changed.lock().unwrap() = Some(state);
        }
    };
    let path = world.path(route);
    let page = match moment {
        Moment::Counted => {
            world.site.gate.run_at_next_count(changing);
            world.send("POST", &path, form).await
        }
        Moment::Body => world.send_slowly(&path, form, changing).await,
    };
    let Some(changed) = changed.lock().unwrap().take() else { return Ok(false) };
    let found = result(&page);
    if !is_refusal(&found) {
        return Err(format!("{route} after {change:?} at {moment:?}: {found}"));
    }
    if State::read(&mut open(&world.site.dir), &actor).await != changed {
        return Err(format!("{route} after {change:?} at {moment:?}: {found}, but changed something"));
    }
    Ok(true)
}

/// Checks all routes that are refused after a change, with the change during the request. `least` is the
/// least number of checks.
async fn check(change: Change, least: usize) {
    let (mut checks, mut wrong) = (0, Vec::new());
    for route in refused_after(change).await {
        for moment in [Moment::Counted, Moment::Body] {
            match send_late(change, moment, route).await {
                Ok(is_changed) => checks += usize::from(is_changed),
                Err(error) => wrong.push(error),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checks >= least, "only {checks} requests were interrupted");
}

#[tokio::test]
async fn all_requests_are_admitted_without_a_change() {
    assert_eq!(refused_after(Change::Nothing).await.len(), 0);
}

macro_rules! late_requests_are_refused {
    ($($name:ident $change:ident $least:literal)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(Change::$change, $least).await;
        })*
    };
}

late_requests_are_refused! {
    after_the_session_ended SessionsEnded 10
    after_a_new_password PasswordChanged 10
    after_a_new_second_factor SecondFactorChanged 10
    after_a_reset PasswordReset 10
    after_the_removal_of_the_user Removed 10
    after_the_loss_of_the_role Demoted 4
    after_the_deletion_of_the_workspace WorkspaceDeleted 8
    after_links_were_withdrawn LinksWithdrawn 2
}
