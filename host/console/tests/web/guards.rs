//! Every route, with every method, in every state and pair of states in which it may be refused. After each
//! request all rows are compared.

use std::collections::BTreeSet;

use enrich_console::routes;
use percent_encoding::percent_decode_str;

use super::routes::{ROWS, Row};
use super::rows::Rows;
use super::site::{PASSWORD, Page};
use super::world::{State, World, result};

#[test]
fn every_route_has_a_row() {
    let id = |path: &str, name| path.replace(name, "{id}");
    let names = ["{session}", "{key}", "{own}", "{off}", "{barred}", "{invitation}"];
    let name = |row: &Row| names.iter().fold(row.route.to_owned(), |path, name| id(&path, name));
    let declared: BTreeSet<_> = routes().iter().map(|(method, path)| format!("{method} {path}")).collect();
    assert_eq!(declared, ROWS.iter().map(name).collect());
}

/// Follows redirects to a page, and enters the password where it is asked for.
async fn follow(world: &World, mut page: Page) -> Page {
    let mut browser = world.browser.clone();
    while page.status == 303 {
        browser.keep(&page);
        page = match page.location().strip_prefix("/confirm?next=") {
            Some(next) => {
                let next = percent_decode_str(next).decode_utf8_lossy();
                browser.post("/confirm", &[("password", PASSWORD), ("next", &next)]).await
            }
            None => browser.get(page.location()).await,
        };
    }
    page
}

/// Sends all requests in some states, each to the rows that the refused ones before it have left unchanged.
async fn check(base: &World, states: &[State]) -> Vec<String> {
    let (mut wrong, mut unchanged) = (Vec::new(), None::<(Vec<State>, World, Rows)>);
    for row in ROWS {
        let states = row.states(states);
        let (of, world, before) = match unchanged.take().filter(|(of, ..)| *of == states) {
            Some(world) => world,
            None => {
                let world = base.with(&states).await;
                let before = world.rows();
                (states, world, before)
            }
        };
        let (method, path) = row.route.split_once(' ').unwrap();
        let page = world.send(method, path, row.form).await;
        let (found, after) = (result(&page), world.rows());
        let mut changed = after.since(&before, world.site.now());
        if found == "go" {
            changed = format!("{}: {changed}", page.location());
        }
        let expected = row.expected(&of);
        if (found.as_str(), changed.as_str()) != expected {
            wrong
                .push(format!("{} {} in {of:?}: {found} {changed:?}, not {expected:?}", row.route, row.form));
        }
        if let "in" | "pw" = found.as_str() {
            assert_eq!(page.location(), row.detour(&world, &found), "{} in {of:?}", row.route);
        }
        if page.has("Key not active") || page.has("Admins only") {
            let (parts, back) = (path.split('/').collect::<Vec<_>>(), page.between("<p><a href=\"", "\""));
            // Seen from the page of a key, `..` is the list.
            let is_list = back == format!("/w/shop/{}", parts[3]) || (back, parts.len()) == ("..", 6);
            assert!(is_list, "{} in {of:?} leads to {back}", row.route);
        }
        if changed.contains("member_session(ada).digest") {
            let mut browser = world.browser.clone();
            browser.keep(&page);
            assert_eq!(browser.get("/account").await.status, 200, "{}: the new token opens pages", row.route);
        }
        if page.location().contains("done") && of.len() < 2 {
            let is_refused = found != "go" && path != "/sign-out" || page.location().contains("-exists");
            let shown = follow(&world.copy().await, page).await;
            // The page of a form also refuses a key that has ended.
            let class = if is_refused { "warning" } else { "notice" };
            let notice = format!("<p class=\"{class}\" role=\"status\">");
            let is_shown = shown.has(&notice) || row.result(State::Nominal) == "409";
            assert!(is_shown, "{} in {of:?} shows no notice: {}", row.route, shown.body);
        }
        if found == "429" {
            world.send(method, path, row.form).await;
            assert_eq!(world.rows().since(&after, world.site.now()), "", "{} is recorded once", row.route);
        }
        if changed.is_empty() && found != "go" {
            unchanged = Some((of, world, before));
        }
    }
    wrong
}

/// Checks a state alone, and together with each state of a later kind.
async fn check_all(state: State) {
    let base = World::new().await;
    let mut wrong = check(&base, &[state]).await;
    // The other ends of a session are like that of `NoSession`.
    let is_alone =
        |state: State| matches!(state, State::Nominal | State::Stale | State::Ended | State::NewFactor);
    let others = State::ALL.iter().filter(|other| !is_alone(state) && other.kind() > state.kind());
    for other in others {
        wrong.extend(check(&base, &[state, *other]).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! states {
    ($($name:ident $state:ident)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $name() {
            check_all(State::$state).await;
        })*
    };
}

states! {
    admin Nominal
    without_a_session NoSession
    with_a_stale_session Stale
    without_a_recent_password NotRecent
    with_a_pending_second_factor Pending
    after_the_end_of_sessions Ended
    after_a_reset Reset
    after_a_new_second_factor NewFactor
    after_too_many_attempts Throttled
    after_too_many_changes Hurried
    after_the_loss_of_the_role Demoted
    after_the_removal_of_the_user Removed
    for_the_workspace_in_capitals Capitals
    for_another_workspace Foreign
    for_objects_of_another_workspace Theirs
    with_a_form_of_another_user OtherUser
    for_objects_that_are_gone Gone
    for_a_deleted_workspace Deleted
    from_another_site OtherSite
    without_counts Uncounted
    during_a_lock_of_the_store Locked
}

#[tokio::test(start_paused = true)]
async fn other_methods_are_refused() {
    let world = World::new().await;
    let before = world.rows();
    let known: BTreeSet<_> = ROWS.iter().map(|row| row.route).collect();
    let paths = ROWS.iter().map(|row| row.route.split_once(' ').unwrap().1);
    let twins = ["{own}", "{off}", "{barred}"];
    for path in paths.filter(|path| !twins.iter().any(|key| path.contains(key))) {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if !known.contains(format!("{method} {path}").as_str()) {
                let page = world.send(method, path, "").await;
                // A user can request the address of a form that was refused.
                let expected = if method == "GET" { 303 } else { 405 };
                assert_eq!(page.status, expected, "{method} {path}");
                let list = follow(&world, page).await;
                assert!(method != "GET" || list.status == 200, "{path}: {}", list.status);
            }
        }
        let get = known.contains(format!("GET {path}").as_str());
        let slash = world.send("GET", &format!("{path}/"), "").await;
        let is_redirected = slash.location() == world.filled(path);
        assert!(is_redirected || ["/", "/reference/{*path}"].contains(&path), "{path}/");
        let head = world.send("HEAD", path, "").await;
        assert_eq!(head.status != 405, get, "HEAD {path}: {}", head.status);
        assert_eq!(head.body, "", "HEAD {path}");
    }
    assert_eq!(world.rows().since(&before, world.site.now()), "");
}
