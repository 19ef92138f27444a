//! Pages while another program has a lock on the accounts.

use std::time::Duration;

use enrich_store::users::Role;
use futures_util::future::join_all;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::refusals::log_to_file;
use super::rows::Rows;
use super::site::{Browser, SHOP, Site};
use super::world::State;

/// Long enough for a slow machine, and shorter than the wait for a lock.
const PROMPT: Duration = Duration::from_secs(5);

fn disable(browser: &Browser, key: &str) -> impl Future<Output = u16> + Send + 'static {
    let (browser, path) = (browser.clone(), format!("/w/shop/keys/{key}/disable"));
    async move { browser.post(&path, &[]).await.status.as_u16() }
}

#[tokio::test]
async fn change_that_waits_for_a_lock_delays_no_other_page() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, "boss@example.com", Role::Admin).await;
    let key = site.create_key(SHOP, "crm").await;
    let lock = State::Locked.change(&site.dir, site.now()).await.unwrap();
    let started = Instant::now();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(disable(&boss, &key))).collect();
    yield_now().await;
    site.advance(Duration::from_secs(61)); // the last use of the session is due
    for page in ["/w/shop/keys", "/w/shop/members", "/account"] {
        assert_eq!(boss.get(page).await.status, 200, "{page}");
    }
    assert!(started.elapsed() < PROMPT && !waiting.iter().any(|change| change.is_finished()));
    lock.execute_batch("ROLLBACK").unwrap();
    for change in waiting {
        assert_eq!(change.await.unwrap(), 303);
    }
}

/// The clock of the runtime advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn change_gives_up_before_the_time_of_its_request_is_over() {
    let (log, _guards) = log_to_file();
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, "boss@example.com", Role::Admin).await;
    let key = site.create_key(SHOP, "crm").await;
    let before = Rows::read(&site.dir);
    let lock = State::Locked.change(&site.dir, site.now()).await.unwrap();
    let started = Instant::now();
    // Three at a time, so that the last ones reach the time of a request.
    let changes: Vec<_> = (0..8).map(|_| tokio::spawn(disable(&boss, &key))).collect();
    for (n, change) in changes.into_iter().enumerate() {
        assert_eq!(change.await.unwrap(), 503);
        let max = Duration::from_secs(if n < 3 { 15 } else { 25 });
        assert!(started.elapsed() >= Duration::from_secs(9) && started.elapsed() < max, "{n}");
    }
    let waited = started.elapsed();
    let log = std::fs::read_to_string(log.path()).unwrap();
    let slow = r#"a page took longer than 20 s method=POST route="/w/{workspace}/keys/{id}/disable""#;
    assert!(log.contains(slow), "{log}");
    site.advance(Duration::from_secs(61)); // the last use of the session is due
    for page in join_all((0..8).map(|_| boss.get("/account"))).await {
        assert_eq!(page.status, 200);
    }
    // As long as one page waits to record the use.
    assert!(started.elapsed() - waited < Duration::from_secs(3));
    drop(lock);
    sleep(Duration::from_secs(30)).await; // longer than any change waits
    let disabled = Rows::read(&site.dir).since(&before, site.now());
    assert!(!disabled.contains("disabled"), "a change that was refused is made later: {disabled}");
    assert_eq!(disable(&boss, &key).await, 303);
}
