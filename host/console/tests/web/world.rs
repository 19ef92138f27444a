//! A web application, and requests of every kind that a guard may refuse.

use std::time::Duration;

use axum::body::Body;
use enrich_store::users::{LinkPurpose, Role};
use enrich_store::workspace::WorkspaceChange;
use http::Request;

use super::site::{Browser, OTHER, PASSWORD, Page, SHOP, Site, code};

/// The secret of the second factor, in the state that has one.
pub const SECRET: &str = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP";

pub const ADA: &str = "ada@example.com";
pub const BOB: &str = "bob@example.com";

/// A kind of request. All but the first lack something that a route may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An admin who has just signed in.
    Admin,
    /// There is no session.
    NoSession,
    /// The session was not used for an hour.
    Stale,
    /// The user is a member, and neither an admin nor the author of the key.
    Member,
    /// The user was removed from the workspace.
    Removed,
    /// The user entered the password 16 minutes ago.
    NotRecent,
    /// Too many attempts were made for the account.
    Throttled,
    /// The user has entered the password, and not the code of the second factor.
    Pending,
    /// The path names another workspace.
    Foreign,
    /// The workspace was deleted.
    Deleted,
}

pub const KINDS: [Kind; 10] = [
    Kind::Admin,
    Kind::NoSession,
    Kind::Stale,
    Kind::Member,
    Kind::Removed,
    Kind::NotRecent,
    Kind::Throttled,
    Kind::Pending,
    Kind::Foreign,
    Kind::Deleted,
];

/// A web application, and a browser that sends requests of one kind.
pub struct World {
    pub site: Site,
    pub browser: Browser,
    pub workspace: &'static str,
    pub key: String,
    pub user: String,
    pub session: String,
    pub invitation: String,
    pub join: String,
    pub reset: String,
}

impl World {
    pub async fn new(kind: Kind) -> Self {
        let site = Site::new().await;
        let admin = site.signed_in(SHOP, ADA, Role::Admin).await;
        let member = site.signed_in(SHOP, BOB, Role::Member).await;
        site.browser().sign_in(ADA, PASSWORD).await;
        let session = admin.get("/account").await.between("/account/sessions/", "/end\"").to_owned();
        let key = site.create_key(SHOP, "crm").await;
        let join = site.invite(SHOP, "new@example.com", Role::Member).await;
        let reset = site.link(SHOP, LinkPurpose::Reset, BOB).await;
        let page = admin.get("/w/shop/members").await;
        let invitation = page.between("/w/shop/members/invitations/", "/delete").to_owned();
        let (_, rows) = page.body.split_once(&format!("{BOB}</th>")).unwrap();
        let user = rows.split_once("/w/shop/members/").unwrap().1.split_once('/').unwrap().0.to_owned();
        site.advance(Duration::from_secs(15 * 60)); // signing in was an attempt
        let admin = admin.sign_in(ADA, PASSWORD).await;
        let member = member.sign_in(BOB, PASSWORD).await;
        let mut browser = match kind {
            Kind::NoSession => site.browser(),
            Kind::Member | Kind::Removed => member,
            _ => admin,
        };
        match kind {
            Kind::Stale => site.advance(Duration::from_secs(3_600)),
            Kind::NotRecent => site.advance(Duration::from_secs(16 * 60)),
            Kind::Removed => site.remove(SHOP, BOB).await,
            Kind::Deleted => site.change(SHOP, WorkspaceChange::Deleted).await,
            Kind::Throttled => {
                for _ in 0..10 {
                    browser.post("/confirm", &[("password", "wrong")]).await;
                    browser.post("/w/shop/sign-in", &[("email", ADA), ("password", "wrong")]).await;
                }
            }
            Kind::Pending => {
                site.enable_second_factor(SHOP, ADA, SECRET).await;
                browser = site.browser();
                let form = [("email", ADA), ("password", PASSWORD)];
                browser.keep(&browser.post("/w/shop/sign-in", &form).await);
            }
            Kind::Admin | Kind::NoSession | Kind::Member | Kind::Foreign => {}
        }
        let workspace = if kind == Kind::Foreign { OTHER } else { SHOP };
        Self { site, browser, workspace, key, user, session, invitation, join, reset }
    }

    pub fn path(&self, route: &str) -> String {
        let token =
            if route.starts_with("/join") { self.join.trim_start_matches("/join/") } else { &self.reset };
        [
            ("{workspace}", self.workspace),
            ("{key}", &self.key),
            ("{user}", &self.user),
            ("{session}", &self.session),
            ("{invitation}", &self.invitation),
            ("{token}", token),
            ("{*path}", "index.html"),
        ]
        .iter()
        .fold(route.to_owned(), |path, (name, value)| path.replace(name, value))
    }

    pub async fn send(&self, method: &str, path: &str, form: &str) -> Page {
        self.send_from("https://console.test", method, path, form).await
    }

    /// Posts a form. Sends the head, then runs `between`, then sends the body.
    pub async fn send_slowly(
        &self,
        path: &str,
        form: &str,
        between: impl Future<Output = ()> + Send + 'static,
    ) -> Page {
        self.browser.post_slowly(path, self.filled(form).await, between).await
    }

    /// Sends a form of a page of `origin`.
    pub async fn send_from(&self, origin: &str, method: &str, path: &str, form: &str) -> Page {
        let request = Request::builder().method(method).uri(path).header("host", "console.test");
        let request = request.header("origin", origin).header("x-forwarded-for", "192.0.2.1");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = match &self.browser.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        };
        let form = self.filled(form).await;
        self.browser.send(request.body(Body::from(form)).unwrap()).await
    }

    /// Fills in the current code of the second factor and the token of the form that creates a key.
    async fn filled(&self, form: &str) -> String {
        let form = form.replace("{code}", &code(&self.site, SECRET));
        if !form.contains("{form}") {
            return form;
        }
        let page = self.browser.get("/w/shop/keys/new").await;
        let token = if page.status == 200 { page.between("name=\"form\" value=\"", "\"") } else { "" };
        form.replace("{form}", token)
    }
}

/// The queries of a redirect to the sign-in page. The page is also shown after signing out.
const REFUSALS: [&str; 2] = ["/sign-in?next=", "/sign-in?done=password-first"];

pub fn result(page: &Page) -> String {
    match (page.status.as_u16(), page.location()) {
        (303, path) if path.ends_with("/sign-in/code") => "code".to_owned(),
        (303, path) if REFUSALS.iter().any(|refusal| path.contains(refusal)) => "in".to_owned(),
        (303, path) if path.ends_with("/sign-in") => "in".to_owned(),
        (303, path) if path.starts_with("/confirm") => "pw".to_owned(),
        (303, _) => "go".to_owned(),
        (status, _) => status.to_string(),
    }
}
