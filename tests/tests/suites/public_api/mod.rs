//! Snapshots of the public API of each crate, which make API changes visible in review. CONTRIBUTING.md
//! describes how to accept a change.

mod listing;

use std::path::Path;

/// Compares the public items of a crate with the snapshot of its name.
fn check(name: &str, dir: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    insta::assert_snapshot!(name, listing::of(&root.join(dir).join("src/lib.rs")));
}

#[test]
fn library_matches_its_snapshot() {
    check("enrich-lib", "enrich-lib");
}

#[test]
fn contract_matches_its_snapshot() {
    check("enrich-contract", "enrich-lib/adapters/contract");
}

#[test]
fn metrics_matches_its_snapshot() {
    check("enrich-metrics", "enrich-lib/adapters/metrics");
}

#[test]
fn middleware_matches_its_snapshot() {
    check("enrich-middleware", "enrich-lib/adapters/middleware");
}

#[test]
fn net_matches_its_snapshot() {
    check("enrich-net", "enrich-lib/adapters/net");
}

#[test]
fn postgres_matches_its_snapshot() {
    check("enrich-postgres", "enrich-lib/adapters/postgres");
}

#[test]
fn provider_matches_its_snapshot() {
    check("enrich-provider", "enrich-lib/adapters/provider");
}

#[test]
fn redis_matches_its_snapshot() {
    check("enrich-redis", "enrich-lib/adapters/redis");
}

#[test]
fn sqlite_matches_its_snapshot() {
    check("enrich-sqlite", "enrich-lib/adapters/sqlite");
}

#[test]
fn store_matches_its_snapshot() {
    check("enrich-store", "enrich-lib/adapters/store");
}

#[test]
fn tower_matches_its_snapshot() {
    check("enrich-tower", "enrich-lib/adapters/tower");
}
