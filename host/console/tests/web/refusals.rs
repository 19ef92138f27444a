//! Refused requests: their pages, and their lines in the log.

use std::time::Duration;

use axum::body::Body;
use enrich_store::users::Role;
use http::Request;
use tempfile::NamedTempFile;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

use super::routes::ROWS;
use super::site::{OTHER, PASSWORD, SHOP, Site};
use super::world::{ADA, BOB, OBJECTS, World};

/// A request that a handler cannot read gets a page of the application, without the text of a library.
#[tokio::test(start_paused = true)]
async fn malformed_requests_get_a_page_of_the_application() {
    let world = World::new().await;
    let (mut refused, mut too_large) = (0, 0);
    for row in ROWS.iter().filter(|row| !row.route.contains("sign-out")) {
        let (method, path) = row.route.split_once(' ').unwrap();
        let odd = OBJECTS.iter().fold(path.replace("{token}", "%FF"), |path, name| path.replace(name, "%FF"));
        let query = format!("{path}?page=x&days=x&before=x&done=%FF");
        let large = "x".repeat(20_000);
        for (path, form) in [(&odd, "x=%FF"), (&query, "form=%FF"), (&path.to_owned(), &large)] {
            let page = world.send(method, path, form).await;
            refused += usize::from(page.status.is_client_error());
            too_large += usize::from(page.status == 413);
        }
    }
    assert!(refused >= 25 && too_large >= 9, "{refused} {too_large}");
    for (path, form, status) in
        [("/w/shop/sign-in", "email=ada@example.com", 400), ("/join/x", "", 404), ("/reset/0", "", 404)]
    {
        assert_eq!(world.send("POST", path, form).await.status, status, "{path}");
    }
    let request = Request::post("/w/shop/sign-in").header("host", "console.test");
    let page = world.browser.send(request.body(Body::from("{}")).unwrap()).await;
    assert_eq!(page.status, 400);
    assert!(page.has("Invalid request"), "{}", page.body);
}

/// Forms, and what their page shows when they are refused.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &str)] = &[
    ("/w/shop/members", "form={form}&role=member&email=bob@example.com", "is a member already"),
    ("/w/shop/members", "role=member&email=no-email", "not an email address"),
    ("/w/shop/members", "role=member&email=", "not an email address"),
    ("/w/shop/keys", "form={form}&label=", "1 to 100 visible characters"),
    ("/w/shop/keys", "form={form}&label=+++", "1 to 100 visible characters"),
    ("/w/shop/keys", "form={form}&label=two%0Alines", "1 to 100 visible characters"),
    ("/w/shop/keys", "form={form}&label={long}&lifetime=90", "<option value=\"90\" selected>"),
    ("/account/password", "current=wrong&password=lantern+river&again=lantern+river", "The password is wrong."),
    ("/account/password", "current=harbour+violet+spoon&password=short&again=short", "at least 8 characters"),
    ("/account/password", "current=harbour+violet+spoon&password=password1&again=password1", "easy to guess"),
    ("/account/password", "current=harbour+violet+spoon&password=ada@example&again=ada@example", "easy to guess"),
    ("/account/password", "current=harbour+violet+spoon&password=lantern+river&again=x", "passwords differ"),
    ("/join/{token}", "password=password&again=password", "easy to guess"),
    ("/reset/{token}", "password=bob@example&again=bob@example", "easy to guess"),
];

#[tokio::test(start_paused = true)]
async fn refused_forms_show_the_reason() {
    let world = World::new().await;
    for (path, form, shown) in REFUSED {
        let form = form.replace("{long}", &"x".repeat(101));
        let page = world.send("POST", path, &form).await;
        assert_eq!(page.status, 422, "{path} {form}");
        assert!(page.has(shown), "{path} {form}: {}", page.body);
    }
}

/// Returns a file to which this thread logs while the guards exist.
pub fn log_to_file() -> (NamedTempFile, (DefaultGuard, Dispatch)) {
    let log = NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt().with_writer(log.reopen().unwrap()).with_ansi(false).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    // With one subscriber, tracing disables events that a thread without it sends first.
    let second = Dispatch::new(tracing_subscriber::registry());
    (log, (guard, second))
}

#[tokio::test(start_paused = true)]
async fn refused_requests_are_logged_by_kind_with_a_count() {
    let (log, _guards) = log_to_file();
    let site = Site::new().await;
    let ada = site.signed_in(SHOP, ADA, Role::Member).await;
    site.join(OTHER, BOB, Role::Member).await;
    for _ in 0..3 {
        ada.post("/w/shop/members/1/remove", &[]).await;
        ada.get("/w/other/keys").await;
        ada.post_from("/sign-out", &[], "https://evil.test").await;
        let unknown = [("email", "eve@example.com"), ("password", PASSWORD)];
        ada.post("/w/shop/sign-in", &unknown).await;
    }
    for _ in 0..13 {
        ada.post("/confirm", &[("password", "wrong wrong")]).await;
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(!log.contains("@example.com"), "{log}");
    for reason in ["admins_only", "other_workspace", "other_site", "unknown_account", "too_many_attempts"] {
        for text in [["refused a request", "192.0.2.1"], ["further refused requests", "count=2"]] {
            let is_it = |line: &&str| line.contains(reason) && text.iter().all(|part| line.contains(part));
            assert_eq!(log.lines().filter(is_it).count(), 1, "{reason} {text:?}: {log}");
        }
    }
}
