//! Nodes beside a schema that is newer than their program.

use enrich_postgres::Schema;

use super::world::{LONG_TIMEOUT, World};

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
    let running = world.node_with(LONG_TIMEOUT).await;
    assert!(world.spend(&running).await.unwrap());
    let next = Schema::VERSION + 1;
    world.sql(&upgrade_to(next)).await;
    let started = world.node_with(LONG_TIMEOUT).await;
    for node in [&running, &started] {
        assert!(world.spend(node).await.unwrap());
    }
    world.admin().await;
    let database = Schema::new(world.postgres.server(&world.database));
    assert_eq!(database.check().await.unwrap(), next);
    assert_eq!(database.migrate().await.unwrap(), next);
    assert_eq!(database.check().await.unwrap(), next);
}
