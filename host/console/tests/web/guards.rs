//! Every route, with every method, for every kind of request that a guard may refuse.
//!
//! The rows state what is expected, independently of the guards of the router. A route without a row fails.

use std::collections::BTreeSet;

use enrich_console::routes;
use enrich_store::users::Role;
use http::Method;

use super::site::{OTHER, PASSWORD, id};
use super::world::{KINDS, Kind, World, result};

/// The expected results in the order of [`KINDS`]. A redirect leads to the sign-in page (`in`), to the page
/// that asks for the password (`pw`) or for the code (`code`), or on (`go`).
pub const ROWS: &[(&str, &str, &str)] = &[
    //                                                     admin none stale memb remo old  thro pend fore dele
    ("GET /", "", "go   in   in   go   in   go   go   in   go   go"),
    ("GET /sign-in", "", "in   200  in   in   in   in   in   200  in   in"),
    ("GET /w/{workspace}/sign-in", "", "200  200  200  200  200  200  200  200  200  200"),
    (
        "POST /w/{workspace}/sign-in",
        "email=ada@example.com&password=harbour+violet+spoon",
        "go   go   go   go   go   go   429  code 401  go",
    ),
    ("GET /w/{workspace}/sign-in/code", "", "in   in   in   in   in   in   in   200  in   in"),
    ("POST /w/{workspace}/sign-in/code", "code={code}", "in   in   in   in   in   in   in   go   in   in"),
    ("POST /sign-out", "", "go   in   in   go   in   go   go   in   go   go"),
    ("GET /confirm", "", "200  in   in   200  in   200  200  in   200  200"),
    ("POST /confirm", "password=harbour+violet+spoon", "go   in   in   go   in   go   429  in   go   go"),
    ("GET /join/{token}", "", "200  200  200  200  200  200  200  200  200  200"),
    ("POST /join/{token}", NEW_PASSWORD, "go   go   go   go   go   go   go   go   go   409"),
    ("GET /reset/{token}", "", "200  200  200  200  404  200  200  200  200  200"),
    ("POST /reset/{token}", NEW_PASSWORD, "go   go   go   go   404  go   go   go   go   409"),
    ("GET /account", "", "200  in   in   200  in   200  200  in   200  200"),
    (
        "POST /account/password",
        "current=harbour+violet+spoon&password=lantern+cobalt+river&again=lantern+cobalt+river",
        "go   in   in   go   in   go   429  in   go   go",
    ),
    ("POST /account/sessions/end-others", "", "go   in   in   go   in   go   go   in   go   go"),
    ("POST /account/sessions/{session}/end", "", "go   in   in   404  in   go   go   in   go   go"),
    ("GET /account/two-factor", "", "200  in   in   200  in   pw   200  in   200  200"),
    ("POST /account/two-factor", NEW_APP, "200  in   in   200  in   pw   429  in   200  200"),
    ("GET /account/two-factor/disable", "", "200  in   in   200  in   pw   200  in   200  200"),
    ("POST /account/two-factor/disable", "", "go   in   in   go   in   pw   429  in   go   go"),
    ("GET /w/{workspace}/keys", "", "200  in   in   200  in   200  200  in   404  200"),
    ("POST /w/{workspace}/keys", "form={form}&label=x", "200  in   in   200  in   pw   200  in   404  409"),
    ("GET /w/{workspace}/keys/new", "", "200  in   in   200  in   pw   200  in   404  200"),
    ("GET /w/{workspace}/keys/{key}/revoke", "", "200  in   in   403  in   200  200  in   404  200"),
    ("POST /w/{workspace}/keys/{key}/revoke", "", "go   in   in   403  in   go   go   in   404  409"),
    ("GET /w/{workspace}/keys/{key}/rotate", "", "200  in   in   403  in   pw   200  in   404  200"),
    (
        "POST /w/{workspace}/keys/{key}/rotate",
        "form={form}&grace=24",
        "200  in   in   403  in   pw   200  in   404  409",
    ),
    ("POST /w/{workspace}/keys/{key}/disable", "", "go   in   in   403  in   go   go   in   404  409"),
    ("POST /w/{workspace}/keys/{key}/enable", "", "go   in   in   403  in   go   go   in   404  409"),
    ("GET /w/{workspace}/usage", "", "200  in   in   200  in   200  200  in   404  200"),
    ("GET /w/{workspace}/usage.csv", "", "200  in   in   200  in   200  200  in   404  200"),
    ("GET /w/{workspace}/ledger.csv", "", "200  in   in   200  in   200  200  in   404  200"),
    ("GET /w/{workspace}/members", "", "200  in   in   200  in   200  200  in   404  200"),
    (
        "POST /w/{workspace}/members",
        "email=eve@example.com&role=member",
        "200  in   in   403  in   pw   200  in   404  409",
    ),
    (
        "POST /w/{workspace}/members/invitations/{invitation}/delete",
        "",
        "go   in   in   403  in   go   go   in   404  409",
    ),
    ("GET /w/{workspace}/members/{user}/remove", "", "200  in   in   403  in   pw   200  in   404  200"),
    ("POST /w/{workspace}/members/{user}/remove", "", "go   in   in   403  in   pw   go   in   404  409"),
    (
        "POST /w/{workspace}/members/{user}/role",
        "role=admin",
        "go   in   in   403  in   pw   go   in   404  409",
    ),
    ("GET /w/{workspace}/audit-log", "", "200  in   in   200  in   200  200  in   404  200"),
    ("GET /w/{workspace}/quick-start", "", "200  in   in   200  in   200  200  in   404  200"),
    (
        "POST /w/{workspace}/quick-start",
        "email=found@enrich.test",
        "200  in   in   200  in   200  200  in   404  409",
    ),
    ("GET /reference", "", "go   go   go   go   go   go   go   go   go   go"),
    ("GET /reference/{*path}", "", "200  200  200  200  200  200  200  200  200  200"),
    ("GET /favicon.svg", "", "200  200  200  200  200  200  200  200  200  200"),
];

const NEW_PASSWORD: &str = "password=lantern+cobalt+river&again=lantern+cobalt+river";

/// The form that turns on a second factor with the secret [`SECRET`](super::world::SECRET).
const NEW_APP: &str = "secret=SGVsbG8h3q2-70hlbGxvId6tvu8&code={code}";

/// Returns the route with the names of parameters as in the rows.
fn row_name(method: &Method, path: &str) -> String {
    let id = ["sessions", "keys", "invitations"].into_iter().zip(["{session}", "{key}", "{invitation}"]);
    let path = id.fold(path.to_owned(), |path, (before, name)| {
        path.replace(&format!("{before}/{{id}}"), &format!("{before}/{name}"))
    });
    format!("{method} {path}")
}

#[test]
fn every_route_has_a_row() {
    let declared: BTreeSet<_> = routes().iter().map(|(method, path)| row_name(method, path)).collect();
    let rows: BTreeSet<_> = ROWS.iter().map(|(route, ..)| (*route).to_owned()).collect();
    assert_eq!(declared, rows);
}

async fn check(column: usize) {
    let kind = KINDS[column];
    let mut world = World::new(kind).await;
    let mut wrong = Vec::new();
    for (route, form, expected) in ROWS {
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(expected.len(), KINDS.len(), "{route}");
        let (method, path) = route.split_once(' ').unwrap();
        let found = result(&world.send(method, &world.path(path), form).await);
        if found != expected[column] {
            wrong.push(format!("{route} for {kind:?}: {found} instead of {}", expected[column]));
        }
        // A refused request changes nothing, so that the next one finds the same world.
        if method == "POST" && !["in", "code", "pw", "403", "404", "409", "429"].contains(&found.as_str()) {
            world = World::new(kind).await;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! columns {
    ($($name:ident $column:literal)*) => {
        $(#[tokio::test]
        async fn $name() {
            check($column).await;
        })*
    };
}

columns! {
    admin_is_admitted 0
    requests_without_a_session_are_refused 1
    requests_with_a_stale_session_are_refused 2
    members_are_refused_what_is_for_admins 3
    removed_members_are_refused 4
    requests_without_a_recent_password_are_refused 5
    attempts_are_refused_after_too_many 6
    requests_with_a_pending_second_factor_are_refused 7
    requests_for_another_workspace_are_refused 8
    changes_of_a_deleted_workspace_are_refused 9
}

#[tokio::test]
async fn other_methods_are_refused() {
    let world = World::new(Kind::Admin).await;
    let known: BTreeSet<_> = ROWS.iter().map(|(route, ..)| *route).collect();
    for path in ROWS.iter().map(|(route, ..)| route.split_once(' ').unwrap().1) {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if !known.contains(format!("{method} {path}").as_str()) {
                let page = world.send(method, &world.path(path), "").await;
                assert_eq!(page.status, 404, "{method} {path}");
            }
        }
        let get = known.contains(format!("GET {path}").as_str());
        let head = world.send("HEAD", &world.path(path), "").await;
        assert_eq!(head.status != 404, get, "HEAD {path}: {}", head.status);
        assert_eq!(head.body, "", "HEAD {path}");
    }
    let _ = &world.site;
}

/// The path names the user's workspace. The rest of it names something in another workspace.
#[tokio::test]
async fn objects_of_another_workspace_do_not_exist() {
    let mut world = World::new(Kind::Admin).await;
    let eve: &str = "eve@example.com";
    let stranger = world.site.signed_in(OTHER, eve, Role::Admin).await;
    world.site.browser().sign_in_at(OTHER, eve, PASSWORD).await;
    world.site.invite(OTHER, "guest@example.com", Role::Member).await;
    world.key = world.site.create_key(OTHER, "theirs").await;
    let user = world.site.admin().await.user_by_email(&id(OTHER), &eve.parse().unwrap()).await;
    world.user = user.unwrap().unwrap().id.0.to_string();
    let page = stranger.get("/w/other/members").await;
    world.invitation = page.between("/w/other/members/invitations/", "/delete").to_owned();
    let page = stranger.get("/account").await;
    world.session = page.between("/account/sessions/", "/end\"").to_owned();
    let mut checked = 0;
    for (route, form, _) in ROWS {
        let (method, path) = route.split_once(' ').unwrap();
        if ["{key}", "{user}", "{session}", "{invitation}"].iter().any(|name| path.contains(name)) {
            let page = world.send(method, &world.path(path), form).await;
            assert_eq!(page.status, 404, "{route}: {}", page.body);
            checked += 1;
        }
    }
    assert_eq!(checked, 11);
}

#[tokio::test]
async fn changes_from_other_sites_are_refused() {
    let world = World::new(Kind::Admin).await;
    for (route, form, _) in ROWS {
        if let Some(path) = route.strip_prefix("POST ") {
            let page = world.send_from("https://evil.test", "POST", &world.path(path), form).await;
            assert_eq!(page.status, 403, "{route}: {}", page.body);
        }
    }
}
