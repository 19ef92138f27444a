//! A web application, and requests in every state that a route may refuse.

use std::time::Duration;

use axum::body::Body;
use enrich_console::Token;
use enrich_lib::model::Timestamp;
use enrich_sqlite::DataDir;
use enrich_store::records::NewKey;
use enrich_store::users::{LinkPurpose, Role, Totp, UserId};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor};
use rusqlite::Connection;

use super::headers;
use super::rows::Rows;
use super::site::{Browser, OTHER, PASSWORD, Page, SHOP, Site, code, id, is_of_account};

/// The secret of the second factor, in the state that has one.
pub const SECRET: &str = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP";

pub const ADA: &str = "ada@example.com";
pub const BOB: &str = "bob@example.com";
const BOSS: &str = "boss@example.com";

macro_rules! states {
    ($($(#[$doc:meta])* $kind:literal $state:ident)*) => {
        /// A state of a request by Ada, an admin who has just signed in. The states are reached in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum State { $($(#[$doc])* $state,)* }

        impl State {
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// Returns the kind of the state: the session, the user, the path or the stores. Two states of one
            /// kind exclude each other.
            pub const fn kind(self) -> u8 {
                match self { $(Self::$state => $kind,)* }
            }
        }
    };
}

states! {
    /// Nothing is refused.
    0 Nominal
    /// There is no session.
    1 NoSession
    /// The session was not used for an hour.
    1 Stale
    /// The user entered the password 16 minutes ago.
    1 NotRecent
    /// The user has entered the password, and not the code of the second factor.
    1 Pending
    /// All sessions of the user were ended.
    1 Ended
    /// The operator has created a link that resets the password.
    1 Reset
    /// The second factor was enabled.
    1 NewFactor
    /// Too many attempts were made for the account.
    2 Throttled
    /// The user has made too many changes.
    2 Hurried
    /// The user is no admin anymore, and not the author of the key `crm`.
    2 Demoted
    /// The user was removed from the workspace.
    2 Removed
    /// The path names the workspace in capitals.
    3 Capitals
    /// The path names another workspace.
    3 Foreign
    /// The path names objects of another workspace, and a session of another user.
    3 Theirs
    /// The form of the account was shown to another user.
    3 OtherUser
    /// The keys, the member and the links in the path have ended.
    3 Gone
    /// The workspace was deleted.
    3 Deleted
    /// A page of another site sends the request.
    3 OtherSite
    /// The attempts and changes cannot be counted.
    4 Uncounted
    /// Another program has locked the accounts for writers.
    4 Locked
}

impl State {
    /// Makes a change that comes from elsewhere, also while a request is in progress. Returns a lock that
    /// lasts.
    pub async fn change(self, dir: &DataDir, now: Timestamp) -> Option<Connection> {
        let (mut accounts, actor, shop) =
            (enrich_sqlite::accounts(dir).unwrap(), Actor::operator(now), id(SHOP));
        let ada = user(&mut accounts, ADA).await;
        match self {
            Self::Ended => accounts.end_sessions(ada, None, &actor).await.map(drop),
            Self::Reset => {
                let (token, email) = (Token::generate(), ADA.parse().unwrap());
                accounts.create_link(&token.link(shop, LinkPurpose::Reset, email, &actor), &actor).await
            }
            Self::NewFactor => {
                let totp = Totp { secret: vec![7; 20], last_step: 0 };
                accounts.set_totp(ada, Some(&totp), &[], None, &actor).await
            }
            Self::Demoted => accounts.set_role(&shop, ada, Role::Member, &actor).await,
            Self::Removed => accounts.remove_user(&shop, ada, &actor).await,
            Self::Deleted => {
                accounts.change_workspace(&shop, &[WorkspaceChange::Deleted], &actor).await.map(drop)
            }
            Self::Gone => {
                for key in accounts.keys(&shop, enrich_store::usage::Day::default()).await.unwrap() {
                    accounts.revoke_key(key.id, &actor).await.unwrap();
                }
                for link in accounts.invitations(Some(&shop), now).await.unwrap() {
                    accounts.delete_invitation(&shop, &link.digest.id(), &actor).await.unwrap();
                }
                let bob = user(&mut accounts, BOB).await;
                accounts.remove_user(&shop, bob, &actor).await
            }
            Self::Locked => {
                let db = Connection::open(dir.path().join("accounts.db")).unwrap();
                db.execute_batch("BEGIN IMMEDIATE").unwrap();
                return Some(db);
            }
            _ => unreachable!("{self:?} is a state of the request"),
        }
        .unwrap();
        None
    }
}

async fn user(accounts: &mut Accounts, email: &str) -> UserId {
    let user = accounts.user_by_email(&id(SHOP), &email.parse().unwrap()).await.unwrap();
    user.map_or(UserId(0), |user| user.id) // removed in another state
}

/// The objects of a workspace that a path names: a key, one that Ada has created, one that is disabled, and
/// others. The forms of an account name Ada.
pub const OBJECTS: [&str; 8] =
    ["{key}", "{own}", "{off}", "{barred}", "{user}", "{session}", "{invitation}", "{ada}"];

/// A web application, and a browser in which Ada is signed in. The other workspace has the same users, keys
/// and links.
pub struct World {
    pub site: Site,
    pub browser: Browser,
    workspace: &'static str,
    origin: &'static str,
    /// The [`OBJECTS`] in the path, and those of another workspace.
    objects: [[String; 8]; 2],
    join: String,
    reset: String,
    /// A form that has created the key `own`, and one that has invited a guest.
    used: String,
    lock: Option<Connection>,
}

impl World {
    pub async fn new() -> Self {
        let site = Site::new().await;
        for workspace in [OTHER, SHOP] {
            for (email, role) in [(BOSS, Role::Admin), (ADA, Role::Admin), (BOB, Role::Member)] {
                site.join(workspace, email, role).await;
            }
            site.browser().sign_in_at(workspace, ADA, PASSWORD).await;
        }
        site.advance(Duration::from_secs(15 * 60)); // signing in was an attempt
        let mut world = Self {
            browser: site.browser(),
            site,
            workspace: SHOP,
            origin: "https://console.test",
            objects: Default::default(),
            join: String::new(),
            reset: String::new(),
            used: Token::generate().reveal().to_owned(),
            lock: None,
        };
        for workspace in [OTHER, SHOP] {
            world.objects.swap(0, 1);
            world.fill(workspace).await;
        }
        // The invited user is a member of the other workspace already.
        world.site.join(OTHER, "new@example.com", Role::Member).await;
        world.site.advance(Duration::from_secs(1));
        world
    }

    /// Signs Ada in, and creates the objects of a workspace.
    async fn fill(&mut self, workspace: &str) {
        let (site, shop) = (&self.site, id(workspace));
        self.reset = site.link(workspace, LinkPurpose::Reset, BOB).await;
        self.join = site.link(workspace, LinkPurpose::Join(Role::Member), "new@example.com").await;
        self.browser = site.browser().sign_in_at(workspace, ADA, PASSWORD).await;
        let key = site.create_key(workspace, "crm").await;
        let [own, off, barred] = ["own", "off", "barred"].map(|label| (label, site.key(workspace, label)));
        let ada = Actor { name: ADA, ..Actor::operator(site.now()) };
        let mut accounts = site.admin().await;
        let form = Token::parse(&self.used).unwrap().digest();
        let own = NewKey { form: Some(&form), ..NewKey::new(&shop, own.0, &own.1) };
        let own = accounts.create_key(&own, &ada).await.unwrap();
        let off = accounts.create_key(&NewKey::new(&shop, off.0, &off.1), &ada).await.unwrap();
        accounts.set_key_enabled(off, false, &ada).await.unwrap();
        let barred = NewKey::new(&shop, barred.0, &barred.1);
        let barred = accounts.create_key(&barred, &ada).await.unwrap();
        accounts.set_key_enabled(barred, false, &Actor::operator(site.now())).await.unwrap();
        let join = LinkPurpose::Join(Role::Member);
        let guest = "guest@example.com".parse().unwrap();
        let token = Token::parse(&self.used).unwrap().of_invitation(&shop, &guest, Role::Member);
        let link = token.link(shop.clone(), join, guest, &ada);
        accounts.create_link(&link, &ada).await.unwrap();
        let [user, own_user] = [BOB, ADA].map(|email| email.parse().unwrap());
        let user = accounts.user_by_email(&shop, &user).await.unwrap().unwrap().id.0;
        let own_user = accounts.user_by_email(&shop, &own_user).await.unwrap().unwrap().id;
        let session = accounts.sessions(own_user).await.unwrap().pop().unwrap().digest.id();
        let invitation = link.digest.id();
        let [own, off, barred] = [own, off, barred].map(|key| key.to_string());
        let ada = own_user.0.to_string();
        self.objects[0] = [key, own, off, barred, user.to_string(), session, invitation, ada];
    }

    /// Returns another web application with the same rows, and with a browser that has the same cookies.
    pub async fn copy(&self) -> Self {
        let site = self.site.copy().await;
        let mut browser = site.browser();
        browser.cookie.clone_from(&self.browser.cookie);
        let [join, reset, used] = [&self.join, &self.reset, &self.used].map(Clone::clone);
        Self { site, browser, objects: self.objects.clone(), join, reset, used, lock: None, ..*self }
    }

    /// Returns a copy in these states.
    pub async fn with(&self, states: &[State]) -> Self {
        let mut states = states.to_vec();
        states.sort_unstable();
        let mut world = self.copy().await;
        for state in states {
            world.reach(state).await;
        }
        settle().await;
        world
    }

    async fn reach(&mut self, state: State) {
        let confirm = self.filled("/confirm?user={ada}");
        let Self { site, browser, objects: [ours, theirs], .. } = self;
        match state {
            State::Nominal => {}
            State::NoSession => browser.cookie = None,
            State::Stale => site.advance(Duration::from_secs(3_600)),
            State::NotRecent => site.advance(Duration::from_secs(16 * 60)),
            State::Pending => {
                site.enable_second_factor(SHOP, ADA, SECRET).await;
                *browser = site.browser();
                let form = [("email", ADA), ("password", PASSWORD)];
                browser.keep(&browser.post("/w/shop/sign-in", &form).await);
            }
            State::Throttled => {
                for _ in 0..10 {
                    browser.post(&confirm, &[("password", "wrong")]).await;
                    browser.post("/w/shop/sign-in", &[("email", ADA), ("password", "wrong")]).await;
                }
            }
            State::Hurried => {
                for _ in 0..60 {
                    browser.post("/w/shop/keys/none/enable", &[]).await;
                }
            }
            State::Capitals => self.workspace = "SHOP",
            State::Foreign => self.workspace = OTHER,
            State::Theirs => ours[..7].swap_with_slice(&mut theirs[..7]),
            State::OtherUser => ours[7..].swap_with_slice(&mut theirs[7..]),
            State::OtherSite => self.origin = "https://evil.test",
            State::Uncounted => site.gate.fail(),
            change => self.lock = change.change(&site.dir, site.now()).await,
        }
    }

    /// Sends a request. `path` and `form` are those of a row.
    pub async fn send(&self, method: &str, path: &str, form: &str) -> Page {
        self.send_slowly(method, path, form, async {}).await
    }

    /// Sends the head, then runs `between`, then sends the body.
    pub async fn send_slowly(
        &self,
        method: &str,
        path: &str,
        form: &str,
        between: impl Future<Output = ()> + Send + 'static,
    ) -> Page {
        let user = if method == "POST" && is_of_account(path) { "?user={ada}" } else { "" };
        let (path, form) = (&format!("{path}{user}"), self.filled(form));
        let body = futures_util::stream::once(async move {
            between.await;
            Ok::<_, std::convert::Infallible>(form)
        });
        let request = self.browser.request(method, &self.filled(path)).header("origin", self.origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let page = self.browser.send(request.body(Body::from_stream(body)).unwrap()).await;
        headers::check(&format!("{method} {path}"), &page);
        if self.workspace == "SHOP" && !path.ends_with("/sign-in") {
            assert!(!page.has("/w/SHOP"), "{path} links to pages of the name as it is stored");
        }
        settle().await;
        page
    }

    pub fn rows(&self) -> Rows {
        Rows::read(&self.site.dir)
    }

    /// Replaces the parameters of a path or a form.
    pub fn filled(&self, text: &str) -> String {
        let token = if text.starts_with("/join") { &self.join } else { &self.reset };
        let objects = OBJECTS.into_iter().zip(self.objects[0].iter().map(String::as_str));
        let (form, code) = (Token::generate(), code(&self.site, SECRET));
        let others = [
            ("{workspace}", self.workspace),
            ("{token}", token),
            ("{form}", form.reveal()),
            ("{used}", &self.used),
            ("{*path}", "index.html"),
            ("{code}", &code),
        ];
        objects.chain(others).fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// Waits until failed attempts are recorded. The clock of the runtime is paused.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// The queries of a redirect to the sign-in page. The page is also shown after signing out.
const REFUSALS: [&str; 3] = ["/sign-in?next=", "/sign-in?done=password-first", "/sign-in?done=sign-in-again"];

pub fn result(page: &Page) -> String {
    match (page.status.as_u16(), page.location()) {
        (303, path) if path.ends_with("/sign-in/code") => "code".to_owned(),
        (303, path) if REFUSALS.iter().any(|refusal| path.contains(refusal)) => "in".to_owned(),
        (303, path) if path.ends_with("/sign-in") || path == "/sign-in?done=signed-out" => "in".to_owned(),
        (303, path) if path.starts_with("/confirm") => "pw".to_owned(),
        (303, path) if path.ends_with("?done=gone") => "gone".to_owned(),
        (303, _) => "go".to_owned(),
        (status, _) => status.to_string(),
    }
}
