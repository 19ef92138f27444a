//! Snapshots of the public API of each crate, which make API changes visible in review. CONTRIBUTING.md describes how to
//! accept a change.

mod listing;

use std::path::Path;

/// Compares the public items of a crate with the snapshot of its name.
fn check(name: &str, dir: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    insta::assert_snapshot!(name, listing::of(&root.join(dir).join("src/lib.rs")));
}

#[test]
fn of_the_library_is_as_written_down() {
    check("enrich-lib", "enrich-lib");
}

#[test]
fn of_middleware_is_as_written_down() {
    check("enrich-middleware", "enrich-lib/adapters/middleware");
}

#[test]
fn of_postgres_is_as_written_down() {
    check("enrich-postgres", "enrich-lib/adapters/postgres");
}

#[test]
fn of_provider_is_as_written_down() {
    check("enrich-provider", "enrich-lib/adapters/provider");
}

#[test]
fn of_redis_is_as_written_down() {
    check("enrich-redis", "enrich-lib/adapters/redis");
}

#[test]
fn of_sqlite_is_as_written_down() {
    check("enrich-sqlite", "enrich-lib/adapters/sqlite");
}

#[test]
fn of_tower_is_as_written_down() {
    check("enrich-tower", "enrich-lib/adapters/tower");
}
