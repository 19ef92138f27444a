//! `/metrics`: each number agrees with what the clients, the stores and the vendors did.

use crate::commands::status;
use crate::enrich::admin::{ADMIN, Scrape, request};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{EMAIL, Enrich, Server, block_on, eventually};
use enrich_tests::servers::{Postgres, Redis};

/// Waits until a metric has the value, and returns the scrape.
fn wait_for(server: &Server, metric: &str, value: f64) -> Scrape {
    eventually(&format!("{metric} is {value}"), || {
        let scrape = Scrape::of(server.admin());
        (scrape.value(metric) == Some(value)).then_some(scrape)
    })
}

#[test]
fn counts_lookups_and_spent_credits() {
    let (enrich, key) = Enrich::with_ada(2, 500);
    let server = enrich.serve(&[ADMIN, "ENRICH_WORKERS=3"]);
    let before = Scrape::of(server.admin());
    assert_eq!(before.value(r#"enrich_lookups_total{outcome="found"}"#), Some(0.0));
    assert_eq!(
        before.value(r#"enrich_lookups_total{outcome="lookup_error"}"#),
        Some(0.0),
        "before its first use"
    );
    for (key, email, expected) in [
        (key.as_str(), EMAIL, 200),
        (&key, "bea@gmail.com", 404),
        (&key, "bea", 400),
        (&key, EMAIL, 200),
        (&key, EMAIL, 402),
        ("enr_unknown", EMAIL, 401),
    ] {
        assert_eq!(status(&server, key, email), expected, "{email}");
    }
    let scrape = Scrape::of(server.admin());
    assert_eq!(scrape.value("enrich_lookup_duration_seconds_count"), Some(5.0), "all but the 401");
    assert_eq!(scrape.value("enrich_commit_spends_sum"), Some(2.0));
    assert_eq!(
        scrape.value("enrich_commit_duration_seconds_count"),
        scrape.value("enrich_commit_spends_count")
    );
    assert!(scrape.value("enrich_commit_duration_seconds_sum") > Some(0.0));
    assert_eq!(scrape.value(r#"enrich_store_up{store="redis"}"#), None, "it counts requests alone");
    assert_eq!(scrape.value("enrich_low_balances"), Some(0.0));
    #[cfg(target_os = "linux")]
    {
        let resident = server.resident_bytes() as f64;
        let shown = scrape.value("process_resident_memory_bytes").unwrap();
        assert!((0.5..2.0).contains(&(shown / resident)), "{shown} of {resident}");
        assert!((0.001..60.0).contains(&scrape.value("process_cpu_seconds_total").unwrap()));
    }
    assert_eq!(scrape.value("enrich_connections_accepted_total"), Some(6.0));
    let accept = "Accept: text/plain;version=0.0.4\r\n";
    let (status, head, plain) = request(server.admin(), "/metrics", accept);
    assert!(
        status == 200 && head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    assert!(
        plain.contains("# TYPE enrich_credits_spent_total counter\nenrich_credits_spent_total 2\n"),
        "{plain}"
    );
    assert!(plain.contains("# TYPE enrich_ready gauge\n") && !plain.contains("# EOF"), "{plain}");
    for secret in [EMAIL, "ada", "bea", "demo", "linkedin", &key] {
        assert!(!scrape.text().contains(secret), "{secret}");
    }
    server.stop();
    let usage = enrich.json(&["usage", "demo", "--json"]);
    assert_eq!(usage.as_array().unwrap().len(), 4, "each outcome is in the usage: {usage}");
}

#[test]
fn counts_requests_of_a_vendor_and_shows_its_breaker() {
    let (enrich, key) = Enrich::with_key(1_000, 1_000);
    let vendor = Vendor::that(Behavior::Matches("ada"));
    vendor.describe(&enrich, "acme", "s3cret");
    let other = Vendor::that(Behavior::NoMatch);
    other.describe(&enrich, "beta", "s3cret");
    let breaker = "breaker = { window_calls = 4, calls_min = 4, failure_rate = 1.0 }";
    let sections = ["acme", "beta"].map(|name| format!("[[vendors]]\nfile = \"{name}.toml\"\n{breaker}\n"));
    let settings = sections.concat() + "[cache]\n";
    let config = enrich.file("enrich.toml", settings);
    let server = enrich.serve(&[ADMIN, "--config", config.to_str().unwrap()]);
    let ask = |n: u32| status(&server, &key, &format!("user{n}@gmail.com"));
    assert_eq!([ask(1), ask(1), ask(2)], [200; 3]);
    vendor.set(Behavior::NoMatch);
    assert_eq!(ask(3), 404);
    let open = || {
        vendor.set(Behavior::Fails(500));
        (10..20).for_each(|n| assert_eq!(ask(n), 502));
    };
    open();
    let scrape = Scrape::of(server.admin());
    let requests = |scrape: &Scrape, outcome: &str| {
        let metric = format!("enrich_vendor_requests_total{{vendor=\"acme\",outcome=\"{outcome}\"}}");
        scrape.value(&metric).unwrap()
    };
    let sent = ["found", "not_found", "unavailable"].map(|outcome| requests(&scrape, outcome));
    assert_eq!(sent[..2], [2.0, 1.0]);
    assert_eq!(sent.iter().sum::<f64>(), vendor.requests().len() as f64);
    let count = scrape.value(r#"enrich_vendor_duration_seconds_count{vendor="acme"}"#);
    assert_eq!(count, Some(vendor.requests().len() as f64));
    let state = |state: &str| format!("enrich_vendor_breaker_state{{vendor=\"acme\",state=\"{state}\"}}");
    assert_eq!(
        ["open", "closed", "half_open"].map(|name| scrape.value(&state(name))),
        [Some(1.0), Some(0.0), Some(0.0)]
    );
    assert_eq!(other.requests().len(), 11, "those without a match of the first vendor");
    for (metric, value) in [
        (r#"enrich_vendor_requests_total{vendor="beta",outcome="not_found"}"#, 11.0),
        (r#"enrich_vendor_requests_total{vendor="beta",outcome="unavailable"}"#, 0.0),
        (r#"enrich_vendor_duration_seconds_count{vendor="beta"}"#, 11.0),
        (r#"enrich_vendor_breaker_state{vendor="beta",state="closed"}"#, 1.0),
    ] {
        assert_eq!(scrape.value(metric), Some(value), "{metric}");
    }
    assert_eq!(
        [scrape.value("enrich_cache_hits_total"), scrape.value("enrich_cache_entries")],
        [Some(1.0), Some(3.0)]
    );

    // Each reload is compared with the previous one: another key closes the breaker, also that of the start.
    let keys = ["s3cret", "other-s3cret", "other-s3cret", "s3cret"];
    for (nth, (key, breaker)) in keys.into_iter().zip(["open", "closed", "open", "closed"]).enumerate() {
        open();
        vendor.set(Behavior::Matches("ada"));
        enrich.file("acme.key", key);
        server.hang_up();
        server.wait_for_log("configuration reloaded", nth + 1);
        assert_eq!(ask(30), if breaker == "open" { 502 } else { 200 }, "reload {nth}");
        assert_eq!(Scrape::of(server.admin()).value(&state(breaker)), Some(1.0), "reload {nth}");
    }
    let scrape = Scrape::of(server.admin());
    assert_eq!(requests(&scrape, "found"), 4.0, "a reload continues the count");
    assert!(!scrape.text().contains("s3cret"));
}

#[cfg(feature = "servers")]
#[test]
fn shows_held_credits_of_a_node() {
    let postgres = Postgres::start();
    let url = postgres.url(&block_on(postgres.create_database()));
    let enrich = Enrich::with_database(url);
    let key = enrich.make_key(100, 500);
    let vendor = Vendor::that(Behavior::Hangs);
    let config = vendor.configure(&enrich, "");
    let redis = Redis::start();
    let args = ["--config", config.to_str().unwrap(), "--windows", &redis.url()];
    let server = enrich.serve(&[&[ADMIN], &args[..]].concat());
    std::thread::scope(|scope| {
        let lookup = scope.spawn(|| status(&server, &key, EMAIL));
        let scrape = wait_for(&server, "enrich_credits_held", 1.0);
        assert_eq!(scrape.value(r#"enrich_connections{state="active"}"#), Some(1.0));
        vendor.set(Behavior::Matches("ada"));
        assert_eq!(lookup.join().unwrap(), 200);
    });
    let scrape = Scrape::of(server.admin());
    assert_eq!(scrape.value("enrich_commit_spends_sum"), Some(1.0));
    // The writer updates it after it has replied.
    wait_for(&server, "enrich_spend_queue_depth", 0.0);
    assert_eq!(scrape.value(r#"enrich_store_up{store="postgresql"}"#), Some(1.0));
}
