//! Nodes beside a schema that is newer than their program.

use enrich_postgres::{Ledger, PostgresError, Schema};
use enrich_store::StoreError;
use enrich_tests::contract::START;

use super::world::World;

/// Returns the changes of the schema that a release may make.
fn upgrade_to(version: usize) -> String {
    format!(
        "ALTER TABLE workspace ADD COLUMN column_{version} text;
         ALTER TABLE credit_hold ADD COLUMN column_{version} bigint NOT NULL DEFAULT 0;
         CREATE TABLE table_{version} (n bigint PRIMARY KEY);
         INSERT INTO migration VALUES ({version})"
    )
}

#[tokio::test]
async fn nodes_serve_a_schema_that_is_one_version_newer() {
    let world = World::with_credits(100).await;
    let running = world.node().await;
    assert!(world.spend(&running).await.unwrap());
    let next = Schema::VERSION + 1;
    world.sql(&upgrade_to(next)).await;
    let started = world.node().await;
    for node in [&running, &started] {
        assert!(world.spend(node).await.unwrap());
    }
    world.admin().await;
    let database = Schema::new(world.postgres.server(&world.database));
    assert_eq!(database.check().await.unwrap(), next);
    assert_eq!(database.migrate().await.unwrap(), next);
    assert_eq!(database.check().await.unwrap(), next);
}

#[tokio::test]
async fn schema_that_is_two_versions_newer_is_refused() {
    let world = World::new().await;
    for version in [1, 2] {
        world.sql(&upgrade_to(Schema::VERSION + version)).await;
    }
    let server = || world.postgres.server(&world.database);
    for error in [
        Schema::new(server()).check().await.unwrap_err(),
        Schema::new(server()).migrate().await.unwrap_err(),
        Ledger::open(server(), Default::default(), START).await.unwrap_err(),
        enrich_postgres::accounts(&server()).await.unwrap_err(),
    ] {
        assert!(matches!(error, PostgresError::Store(StoreError::NewerSchema(_))), "{error}");
    }
}
