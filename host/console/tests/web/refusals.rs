//! Refused requests: their pages, and their lines in the log.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use enrich_store::users::Role;
use http::Request;
use tracing_subscriber::fmt::MakeWriter;

use super::routes::ROWS;
use super::site::{OTHER, PASSWORD, SHOP, Site};
use super::world::{ADA, BOB, OBJECTS, World};

/// A request that a handler cannot read gets a page of the application, without the text of a library.
#[tokio::test(start_paused = true)]
async fn malformed_requests_get_a_page_of_the_application() {
    let world = World::new().await;
    let mut refused = 0;
    for row in ROWS.iter().filter(|row| !row.route.contains("sign-out")) {
        let (method, path) = row.route.split_once(' ').unwrap();
        let odd = OBJECTS.iter().fold(path.replace("{token}", "%FF"), |path, name| path.replace(name, "%FF"));
        let query = format!("{path}?page=x&days=x&before=x&done=%FF");
        let large = "x".repeat(20_000);
        for (path, form) in [(&odd, "x=%FF"), (&query, "form=%FF"), (&path.to_owned(), &large)] {
            let page = world.send(method, path, form).await;
            if page.status.is_client_error() {
                assert!(page.has("<!doctype html>") && page.has("<h1>"), "{method} {path}: {}", page.body);
                refused += 1;
            }
        }
    }
    assert!(refused >= 25, "{refused}");
    let request = Request::post("/w/shop/sign-in").header("host", "console.test");
    let page = world.browser.send(request.body(Body::from("{}")).unwrap()).await;
    assert_eq!(page.status, 400);
    assert!(page.has("Invalid request"), "{}", page.body);
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn count(&self, parts: &[&str]) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("@example.com"), "{text}");
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }
}

#[tokio::test(start_paused = true)]
async fn refused_requests_are_logged_by_kind_with_a_count() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
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
    for (reason, further) in [
        ("admins_only", "count=2"),
        ("other_workspace", "count=2"),
        ("other_site", "count=2"),
        ("unknown_account", "count=2"),
        ("too_many_attempts", "count=2"),
    ] {
        assert_eq!(lines.count(&[reason, "refused a request", "192.0.2.1"]), 1, "{reason}");
        assert_eq!(lines.count(&[reason, "further refused requests", further]), 1, "{reason}");
    }
}
