//! The usage page and its downloads.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::key::KeyId;
use enrich_lib::window::Quota;
use enrich_sqlite::{Ledger, run_on_thread};
use enrich_store::usage::{Day, UsageCount};
use enrich_store::users::Role;
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Clocks, Ledger as _, grouped};

use super::site::{Page, SHOP, Site, id, pages};

const ADA: &str = "ada@example.com";

/// Counts this number of lookups without a match, and as many free ones with a match, on each of the last 100
/// days, by the age of the day.
async fn count_lookups(site: &Site, lookups: impl Fn(u32) -> u64) {
    let days = (0..=100).rev().map(|age| (age, Day::from_timestamp(site.now()).minus(age)));
    let ledger =
        Ledger::open(&site.dir, Clocks::simulated(site.now()), || Duration::ZERO, run_on_thread).unwrap();
    for (age, day) in days {
        let count = |outcome| {
            let (workspace, key) = (id(SHOP), KeyId::from_number(1));
            UsageCount { day, workspace, key, outcome, lookups: lookups(age) }
        };
        ledger.usage().put_back(vec![count("not_found"), count("found")]);
        ledger.tick(Clocks::simulated(day.starts_at())).await.unwrap();
    }
    ledger.close().await.unwrap();
}

#[tokio::test]
async fn page_and_download_have_the_days_of_their_period() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    // No other days have the same sum.
    let lookups = |age: u32| u64::from(1_000 + age * age);
    count_lookups(&site, lookups).await;
    for days in [7, 30, 90] {
        let total = (0..days).map(lookups).sum::<u64>();
        let page = browser.get(&format!("/w/shop/usage?days={days}")).await;
        let (all, each) = (grouped(2 * total), grouped(total));
        let text = format!("{all} lookups in {days} days: 0 billed, {each} found for free, {each} not found");
        assert!(page.has(&text), "{text}: {}", page.body);
        for cell in ["<code>found</code></th>", "<th scope=\"row\">Total</th>", "<th scope=\"row\">key_"] {
            assert!(page.between(cell, "</tr>").contains(&format!(">{each}</td>")), "{cell}: {}", page.body);
        }
        let csv = browser.get(&format!("/w/shop/usage.csv?days={days}")).await.body;
        let rows = csv.lines().skip(1).map(|row| {
            let columns: Vec<_> = row.split(',').collect();
            (columns[0], columns[3].parse::<u64>().unwrap())
        });
        let sum = rows.clone().map(|(_, lookups)| lookups).sum();
        assert_eq!((rows.clone().count(), sum), (2 * days as usize, 2 * total), "{csv}");
        assert!(page.has(&format!("?days={days}\" aria-current=\"true\"")), "{}", page.body);
        assert_eq!(page.body.matches("aria-current=\"true\"").count(), 1);
        let mut by_day = BTreeMap::<&str, u64>::new();
        rows.for_each(|(day, lookups)| *by_day.entry(day).or_default() += lookups);
        let mut table = page.between("<h2>By day</h2>", "</tbody>");
        assert_eq!(table.matches("<th scope=\"row\">").count(), days as usize);
        for (day, lookups) in by_day.iter().rev() {
            let row = format!("<th scope=\"row\">{day}</th><td class=\"number\">{}</td>", grouped(*lookups));
            (_, table) = table.split_once(&row).unwrap_or_else(|| panic!("no {row}: {}", page.body));
        }
        check_chart(&page, by_day.values().map(|lookups| lookups / 2).collect());
    }
}

/// Checks that each day has its place in the chart, with two bars that are as high as these lookups, one on the other.
fn check_chart(page: &Page, lookups: Vec<u64>) {
    let number = |bar: &str, name: &str| {
        let (_, value) = bar.split_once(&format!("{name}=\"")).unwrap();
        value.split_once('"').unwrap().0.parse::<f64>().unwrap()
    };
    let bars = page.between("<svg", "</svg>").split("<rect").skip(1);
    let bars = bars.map(|bar| [" x", " y", " width", " height"].map(|name| number(bar, name)));
    let bars: Vec<_> = bars.collect();
    assert_eq!(bars.len(), 2 * lookups.len());
    let highest = bars.iter().map(|[.., height]| *height).fold(0.0, f64::max);
    let (scale, mut end) = (highest / *lookups.iter().max().unwrap() as f64, 0.0);
    for (day, lookups) in bars.chunks(2).zip(lookups) {
        let [[x, y, width, height], [upper_x, upper_y, upper_width, upper_height]] = day else {
            unreachable!()
        };
        assert!(x == upper_x && width == upper_width && *y == upper_y + upper_height);
        assert!(*x >= end && *width >= 1.0 && *upper_y >= 0.0);
        for height in [height, upper_height] {
            assert!((height - lookups as f64 * scale).abs() < 2.0, "{height} for {lookups}");
        }
        end = x + width;
    }
    assert!(highest > 50.0 && (800.0..850.0).contains(&end), "the newest day is at the right");
}

#[tokio::test]
async fn downloads_are_csv_files_named_after_the_workspace() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let usage = browser.get("/w/shop/usage.csv?days=90").await;
    assert_eq!(usage.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(usage.header("content-disposition"), "attachment; filename=\"usage-shop.csv\"");
    assert_eq!(usage.body, "day,key,outcome,lookups,credits\n");
    let ledger = browser.get("/w/shop/ledger.csv").await;
    assert_eq!(ledger.body, "at,entry,credits,note\n2027-01-15T08:00:00Z,grant,1000,\n");
}

#[tokio::test]
async fn adjustments_and_refunds_are_in_the_list_of_grants() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    site.adjust(SHOP, -250, "granted twice").await;
    let page = browser.get("/w/shop/usage").await;
    assert!(
        page.has("<td>Adjustment</td><td>granted twice</td><td class=\"number\">−250</td>"),
        "{}",
        page.body
    );
    assert!(page.has("<dd>750</dd>"), "{}", page.body);
    let ledger = browser.get("/w/shop/ledger.csv").await;
    assert!(ledger.body.ends_with(",adjustment,-250,\"granted twice\"\n"), "{}", ledger.body);
    for _ in 0..49 {
        site.adjust(SHOP, 1, "=1+1, \"typo\"").await;
    }
    let page = browser.get("/w/shop/usage").await;
    let rows = ["<td>Grant</td>", "<td>Adjustment</td>"].map(|kind| page.body.matches(kind).count());
    assert!(rows == [0, 50] && page.has("These are the newest 50."), "{rows:?}");
    let ledger = browser.get("/w/shop/ledger.csv").await.body;
    assert!(ledger.ends_with(",adjustment,1,\"'=1+1, \"\"typo\"\"\"\n"), "{ledger}");
    assert_eq!(ledger.lines().count(), 52);
    site.admin().await.create_workspace(&id("new"), Quota::default(), 0, site.now()).await.unwrap();
    let browser = site.signed_in("new", ADA, Role::Member).await;
    assert_eq!(browser.get("/w/new/ledger.csv").await.body, "at,entry,credits,note\n");
    for (n, reason) in [(1, ""), (2, "wrong person")] {
        let lookup = site.refund("new", n, reason).await;
        let note = if reason.is_empty() { lookup } else { format!("{lookup}: {reason}") };
        let (page, ledger) = (browser.get("/w/new/usage").await, browser.get("/w/new/ledger.csv").await);
        assert!(page.has(&format!("<td>Refund</td><td>{note}</td>")), "{}", page.body);
        assert!(ledger.body.ends_with(&format!(",refund,3,\"{note}\"\n")), "{}", ledger.body);
    }
}

#[tokio::test]
async fn few_credits_are_shown_on_every_page_with_the_days_that_they_last() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let pages =
        ["/w/shop/keys", "/w/shop/usage", "/w/shop/members", "/w/shop/audit-log", "/account", "/confirm"];
    site.change(SHOP, WorkspaceChange::DisplayName(Some("Ada's Shop"))).await;
    for (low, is_shown) in [(0, false), (999, false), (1_000, true)] {
        site.change(SHOP, WorkspaceChange::LowBalance(low)).await;
        for path in pages {
            let page = browser.get(path).await;
            assert!(page.has("<p class=\"workspace\">Ada&#39;s Shop</p>"), "{}", page.body);
            assert_eq!(page.has("Few credits are left: 1,000."), is_shown, "{low} {path}: {}", page.body);
        }
        let page = browser.get("/w/shop/usage").await;
        assert_eq!(
            page.has("min=\"0\" max=\"1000\" low=\"1000\" optimum=\"1000\" value=\"1000\""),
            is_shown,
            "{}",
            page.body
        );
        assert!(!page.has("Days left"), "no credits were spent");
    }
    // 3 credits on each of 8 days, of which the last 7 count.
    let db = rusqlite::Connection::open(site.dir.path().join("accounts.db")).unwrap();
    let today = site.now().unix_ms() / 86_400_000;
    let insert = "INSERT INTO usage_day SELECT ?1, rowid, 1, 'billed', 3, 3 FROM workspace WHERE id = 'shop'";
    for day in (today - 7..=today).chain([today - 500]) {
        db.execute(insert, [day]).unwrap();
    }
    let page = browser.get("/w/shop/usage").await;
    assert!(page.has("Days left, as spent in the last 7 days</dt><dd>333</dd>"), "{}", page.body);
    let ledger = browser.get("/w/shop/ledger.csv").await.body;
    let credits = ledger.lines().skip(1).map(|row| row.split(',').nth(2).unwrap().parse::<i64>().unwrap());
    assert_eq!(credits.sum::<i64>(), 1_000 - 9 * 3, "the sum of all days: {ledger}");
}

#[tokio::test]
async fn pages_of_a_suspended_or_deleted_workspace_say_so() {
    const DELETED: &str = "This workspace was deleted";
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    for (change, text) in [
        (WorkspaceChange::Suspended(true), "This workspace is suspended."),
        (WorkspaceChange::Deleted, DELETED),
    ] {
        assert!(!browser.get("/w/shop/usage").await.has(text));
        site.change(SHOP, change).await;
        for path in pages().iter().filter(|path| !path.ends_with(".csv")) {
            let page = browser.get(path).await;
            assert!(page.has(text), "{path}");
            let is_changeable = page.has("action=\"/w/shop") || page.has("keys/new");
            assert!(text != DELETED || !is_changeable, "{path}: {}", page.body);
        }
    }
}
