//! A web application with a clock that the test sets, and its browsers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroI64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use argon2::password_hash::PasswordHasher;
use argon2::{Algorithm, Argon2, Params, Version};
use axum::Router;
use axum::body::Body;
use enrich_console::{Config, OpenAccounts as _, Token, router};
use enrich_host::ClientAddress;
use enrich_host::pages::Peer;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Window};
use enrich_sqlite::DataDir;
use enrich_store::records::NewKey;
use enrich_store::users::{LinkPurpose, Role, Totp};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor};
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{Mutex, MutexGuard};
use totp_rs::{Builder, Secret};
use tower::ServiceExt;

use crate::Store;

pub const PASSWORD: &str = "harbour violet spoon";

/// A hash of [`PASSWORD`] with the lowest cost. With that of the web application, hashing would take most of
/// the tests' time.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let lowest = Params::new(Params::MIN_M_COST, Params::MIN_T_COST, Params::MIN_P_COST, None).unwrap();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, lowest);
    argon2.hash_password(PASSWORD.as_bytes()).unwrap().to_string()
});

/// The workspaces of each test.
pub const SHOP: &str = "shop";
pub const OTHER: &str = "other";

/// Counts attempts and changes. Runs what a test has set before the next count, which comes after the request
/// was checked.
#[derive(Default)]
pub struct Gate {
    windows: WindowTable,
    counters: std::sync::Mutex<BTreeSet<WorkspaceId>>,
    next: std::sync::Mutex<Option<BoxFuture<'static, ()>>>,
    fails: AtomicBool,
}

impl Gate {
    pub fn run_at_next_count(&self, change: impl Future<Output = ()> + Send + 'static) {
        *self.next.lock().unwrap() = Some(Box::pin(change));
    }

    /// Returns the number of counters that were used.
    pub fn counters(&self) -> usize {
        self.counters.lock().unwrap().len()
    }

    pub fn fail(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl Windows for Gate {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let next = self.next.lock().unwrap().take();
        if let Some(next) = next {
            next.await;
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(PortError::new(std::io::Error::other("no counts")));
        }
        self.counters.lock().unwrap().insert(window.workspace().clone());
        self.windows.count(window).await
    }
}

pub struct Site {
    pub gate: Arc<Gate>,
    pub router: Router,
    pub dir: DataDir,
    accounts: Mutex<Accounts>,
    now_ms: Arc<AtomicU64>,
}

impl Site {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let site = Self::of(Store::new().await, 1_800_000_000_000, change).await;
        for workspace in [SHOP, OTHER] {
            let mut admin = site.admin().await;
            admin.create_workspace(&id(workspace), Quota::default(), 1_000, site.now()).await.unwrap();
        }
        site
    }

    /// Returns another web application with the same rows and time, and without counted attempts.
    pub async fn copy(&self) -> Self {
        let store = Store::new().await;
        let [from, to] = [&self.dir, &store.dir].map(|dir| dir.path().join("accounts.db"));
        rusqlite::Connection::open(from).unwrap().execute("VACUUM INTO ?1", [to.to_str()]).unwrap();
        Self::of(store, self.now().unix_ms(), |_| {}).await
    }

    async fn of(store: Store, now_ms: u64, change: impl FnOnce(&mut Config)) -> Self {
        let (dir, accounts) = (store.dir.clone(), Mutex::new(store.open().await.unwrap()));
        let now_ms = Arc::new(AtomicU64::new(now_ms));
        let (clock, gate) = (now_ms.clone(), Arc::new(Gate::default()));
        let mut config = Config {
            url: "https://console.test".to_owned(),
            api_url: "https://api.test".to_owned(),
            is_tls: true,
            client_address: ClientAddress::XForwardedFor(vec!["10.0.0.0/8".parse().unwrap()]),
            logs_client_address: true,
            windows: gate.clone(),
            now: Arc::new(move || Timestamp::from_unix_ms(clock.load(Ordering::Relaxed))),
            open: Box::new(store),
        };
        change(&mut config);
        Self { gate, router: router(config), dir, accounts, now_ms }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms.load(Ordering::Relaxed))
    }

    pub fn advance(&self, time: Duration) {
        self.now_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub fn set_back(&self, time: Duration) {
        self.now_ms.fetch_sub(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// The accounts, opened by the operator.
    pub async fn admin(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().await
    }

    /// Creates an invitation as the operator does, and returns the path of its link.
    pub async fn invite(&self, workspace: &str, email: &str, role: Role) -> String {
        format!("/join/{}", self.link(workspace, LinkPurpose::Join(role), email).await)
    }

    pub async fn link(&self, workspace: &str, purpose: LinkPurpose, email: &str) -> String {
        let (token, actor) = (Token::generate(), Actor::operator(self.now()));
        let link = token.link(id(workspace), purpose, email.parse().unwrap(), &actor);
        self.admin().await.create_link(&link, &actor).await.unwrap();
        token.reveal().to_owned()
    }

    /// Creates a user with a link. The password is [`PASSWORD`].
    pub async fn join(&self, workspace: &str, email: &str, role: Role) {
        let token = Token::parse(&self.link(workspace, LinkPurpose::Join(role), email).await).unwrap();
        let actor = Actor::operator(self.now());
        self.admin().await.use_link(&token.digest(), &HASH, &actor).await.unwrap().unwrap();
    }

    /// Creates a key as the operator does, and returns its id.
    pub async fn create_key(&self, workspace: &str, label: &str) -> String {
        let (key, workspace) = (self.key(workspace, label), id(workspace));
        let new = NewKey::new(&workspace, label, &key);
        self.admin().await.create_key(&new, &Actor::operator(self.now())).await.unwrap().to_string()
    }

    /// Returns a key that no other workspace and label have.
    pub fn key(&self, workspace: &str, label: &str) -> ApiKey {
        let seed: Vec<_> = label.bytes().chain(workspace.bytes()).collect();
        let mut seed = seed.into_iter().cycle();
        ApiKey::generate(move || seed.next().unwrap())
    }

    /// Adjusts the credits of a workspace as the operator does.
    pub async fn adjust(&self, workspace: &str, credits: i64, reason: &str) {
        let (credits, actor) = (NonZeroI64::new(credits).unwrap(), Actor::operator(self.now()));
        self.admin().await.adjust(&id(workspace), credits, reason, &actor).await.unwrap();
    }

    /// Refunds a lookup that cost 3 credits as the operator does, and returns its id.
    pub async fn refund(&self, workspace: &str, n: u8, reason: &str) -> String {
        let (lookup, actor) = (LookupId::new(self.now(), [n; 10]), Actor::operator(self.now()));
        let db = rusqlite::Connection::open(self.dir.path().join("accounts.db")).unwrap();
        let insert = "INSERT INTO credit_spend SELECT ?1, rowid, 1, 3, 0 FROM workspace WHERE id = ?2";
        db.execute(insert, rusqlite::params![lookup.as_bytes(), workspace]).unwrap();
        self.admin().await.refund(lookup, reason, &actor).await.unwrap();
        lookup.to_string()
    }

    /// Turns on the second factor of a user with this secret, in base 32.
    pub async fn enable_second_factor(&self, workspace: &str, email: &str, secret: &str) {
        let mut admin = self.admin().await;
        let user = admin.user_by_email(&id(workspace), &email.parse().unwrap()).await.unwrap().unwrap();
        let secret = Secret::try_from_base32(secret).unwrap().as_bytes().to_vec();
        let (totp, actor) = (Totp { secret, last_step: 0 }, Actor::operator(self.now()));
        admin.set_totp(user.id, Some(&totp), &[], None, &actor).await.unwrap();
    }

    /// Changes a workspace as the operator does.
    pub async fn change(&self, workspace: &str, change: WorkspaceChange<'_>) {
        let actor = Actor::operator(self.now());
        self.admin().await.change_workspace(&id(workspace), &[change], &actor).await.unwrap();
    }

    /// Returns a browser in which a new user of `workspace` is signed in.
    pub async fn signed_in(&self, workspace: &str, email: &str, role: Role) -> Browser {
        self.join(workspace, email, role).await;
        self.browser().sign_in_at(workspace, email, PASSWORD).await
    }

    pub fn browser(&self) -> Browser {
        Browser { router: self.router.clone(), cookie: None, address: "192.0.2.1".parse().unwrap() }
    }
}

/// Returns the code that an authenticator app with this secret shows.
pub fn code(site: &Site, secret: &str) -> String {
    let secret = Secret::try_from_base32(secret).unwrap();
    let totp = Builder::new().with_secret(secret).build().unwrap();
    totp.generate(site.now().unix_ms() / 1_000).to_string()
}

pub fn id(workspace: &str) -> WorkspaceId {
    workspace.parse().unwrap()
}

#[derive(Clone)]
pub struct Browser {
    router: Router,
    pub cookie: Option<String>,
    pub address: IpAddr,
}

pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Page {
    pub fn location(&self) -> &str {
        self.header("location")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn has(&self, text: &str) -> bool {
        self.body.contains(text)
    }

    /// Checks what each page has in common: it is complete, marks its own link alone, names the user beside a password
    /// for password managers, which ignore fields of the type `hidden`, and marks one session of an account as that of
    /// the browser.
    fn check(&self, path: &str) {
        if self.status != StatusCode::OK {
            return;
        }
        let media_type = self.header("content-type");
        assert!(!media_type.is_empty(), "{path}");
        if !media_type.starts_with("text/html") || self.body.is_empty() {
            return;
        }
        assert!(self.has("<h1") && self.body.trim_end().ends_with("</html>"), "{path}: {}", self.body);
        let own_links = self.body.matches(" aria-current=\"page\"").count();
        let section = path.rsplit('/').next().unwrap();
        if ["keys", "usage", "members", "audit-log", "quick-start", "account"].contains(&section) {
            assert!(self.has(&format!("/{section}\" aria-current=\"page\"")), "{path}: {}", self.body);
        }
        assert!(own_links <= 1, "{path}: {}", self.body);
        let names = |input: &str| input.contains("type=\"text\"") && input.contains("=\"username\"");
        let has_user = self.body.split("<input").any(|input| names(input.split('>').next().unwrap()));
        assert!(has_user || !self.has("type=\"password\""), "{path}: {}", self.body);
        assert!(path != "/account" || self.body.matches("this one").count() == 1, "{}", self.body);
    }

    /// Returns the text between `before` and `after`.
    pub fn between(&self, before: &str, after: &str) -> &str {
        let (_, rest) = self.body.split_once(before).unwrap_or_else(|| panic!("no {before}: {}", self.body));
        rest.split_once(after).unwrap().0
    }
}

impl Browser {
    pub async fn get(&self, path: &str) -> Page {
        self.send(self.request("GET", path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Page {
        self.post_from(path, form, "https://console.test").await
    }

    /// Opens `page` and posts its form, with its one-time token, to `path`.
    pub async fn submit(&self, page: &str, path: &str, form: &[(&str, &str)]) -> Page {
        let page = self.get(page).await;
        let token = [("form", page.between("name=\"form\" value=\"", "\""))];
        self.post(path, &[&token, form].concat()).await
    }

    /// Creates a key in the workspace `shop`.
    pub async fn create_key(&self, label: &str, lifetime: &str) -> Page {
        let form = [("label", label), ("lifetime", lifetime)];
        self.submit("/w/shop/keys/new", "/w/shop/keys", &form).await
    }

    /// Posts a form of a page of `origin`. A form of an account names its user.
    pub async fn post_from(&self, path: &str, form: &[(&str, &str)], origin: &str) -> Page {
        let mut path = path.to_owned();
        if is_of_account(&path) {
            let account = self.get("/account").await.body;
            let user = account.split_once("?user=").map_or("0", |(_, rest)| rest.split('"').next().unwrap());
            path = format!("{path}?user={user}");
        }
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let fields: Vec<_> = form.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let request = self.request("POST", &path).header("origin", origin);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(fields.join("&"))).unwrap()).await
    }

    /// Signs in at the workspace `shop`.
    pub async fn sign_in(self, email: &str, password: &str) -> Self {
        self.sign_in_at(SHOP, email, password).await
    }

    pub async fn sign_in_at(mut self, workspace: &str, email: &str, password: &str) -> Self {
        let page =
            self.post(&format!("/w/{workspace}/sign-in"), &[("email", email), ("password", password)]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.body);
        self.keep(&page);
        self
    }

    /// Keeps the cookies of a reply, each in place of an earlier one with its name.
    pub fn keep(&mut self, page: &Page) {
        let replies = page.headers.get_all(SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap());
        let replies: Vec<_> = replies.map(|cookie| cookie.split(';').next().unwrap()).collect();
        let before = self.cookie.take().unwrap_or_default();
        let cookies = before.split("; ").chain(replies).filter_map(|cookie| cookie.split_once('='));
        let cookies: BTreeMap<_, _> = cookies.collect();
        let cookies = cookies.iter().filter(|(_, value)| !value.is_empty());
        let cookies: Vec<_> = cookies.map(|(name, value)| format!("{name}={value}")).collect();
        self.cookie = (!cookies.is_empty()).then(|| cookies.join("; "));
    }

    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let request = Request::builder().method(method).uri(path).header("host", "console.test");
        let request = request.header("x-forwarded-for", format!("203.0.113.9, {}", self.address));
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    /// Sends a request through a proxy.
    pub async fn send(&self, mut request: Request<Body>) -> Page {
        request.extensions_mut().insert(Peer([10, 0, 0, 1].into()));
        let path = request.uri().path().to_owned();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let page = Page { status: parts.status, headers: parts.headers, body };
        page.check(&path);
        page
    }
}

/// Returns whether a path without a query is that of a form of an account.
pub fn is_of_account(path: &str) -> bool {
    (path.starts_with("/account/") || path == "/confirm") && !path.contains('?')
}

/// All pages of the workspace `shop` that a member can get.
pub fn pages() -> Vec<String> {
    let pages =
        ["keys", "keys/new", "usage", "usage.csv", "ledger.csv", "members", "audit-log", "quick-start"];
    pages.iter().map(|page| format!("/w/{SHOP}/{page}")).collect()
}
