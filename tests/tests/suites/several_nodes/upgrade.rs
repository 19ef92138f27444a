//! Nodes beside a schema that is newer than their program.

use enrich_postgres::{Admin, Database, Ledger, PostgresError};
use enrich_store::users::Role;
use enrich_store::{StoreError, Users as _};
use enrich_tests::contract::START;
use enrich_tests::servers::Postgres;

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
    let world = World::new().await;
    world.workspace(100).await;
    let running = world.node().await;
    assert!(world.spend(&running).await.unwrap());
    let next = Database::VERSION + 1;
    world.sql(&upgrade_to(next)).await;
    let started = world.node().await;
    for node in [&running, &started] {
        assert!(world.spend(node).await.unwrap());
    }
    world.admin().await;
    let database = Database::new(world.postgres.server(&world.database));
    assert_eq!(database.check().await.unwrap(), next);
    assert_eq!(database.migrate().await.unwrap(), next);
    assert_eq!(database.check().await.unwrap(), next);
}

#[tokio::test]
async fn schema_that_is_two_versions_newer_is_refused() {
    let world = World::new().await;
    for version in [1, 2] {
        world.sql(&upgrade_to(Database::VERSION + version)).await;
    }
    let server = || world.postgres.server(&world.database);
    for error in [
        Database::new(server()).check().await.unwrap_err(),
        Database::new(server()).migrate().await.unwrap_err(),
        Ledger::open(server(), Default::default(), START).await.unwrap_err(),
        Admin::open(&server()).await.unwrap_err(),
    ] {
        assert!(matches!(error, PostgresError::Store(StoreError::NewerSchema(_))), "{error}");
    }
}

#[tokio::test]
async fn user_of_several_workspaces_stays_in_the_first_one() {
    let (postgres, database) = (Postgres::shared(), "with_memberships");
    postgres.sql("postgres", &format!("CREATE DATABASE {database}")).await;
    let first_version = [
        "CREATE TABLE migration (n integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp());
         INSERT INTO migration (n) VALUES (1)",
        include_str!("../../../../enrich-lib/adapters/postgres/migrations/0001/accounts.sql"),
        include_str!("../../../../enrich-lib/adapters/postgres/migrations/0001/copies.sql"),
        include_str!("../../../../enrich-lib/adapters/postgres/migrations/0001/console.sql"),
        include_str!("../../../../enrich-lib/adapters/postgres/migrations/0001/opt_outs.sql"),
        "INSERT INTO workspace (id, quota_limit, window_seconds, created_at)
             VALUES ('first', 1, 1, 'epoch'), ('second', 1, 1, 'epoch');
         INSERT INTO console_user (email, password_hash, totp_secret, totp_last_step, created_at)
             VALUES ('ada@example.com', '$ada', 'x', 3, 'epoch'), ('bob@example.com', '$bob', NULL, 0, 'epoch');
         INSERT INTO membership (workspace, user_id, role, joined_at)
             SELECT w.rowid, u.rowid, i.role, to_timestamp(i.joined_at)
             FROM (VALUES ('second', '$ada', 'member', 10), ('first', '$ada', 'admin', 20), ('first', '$bob', 'admin', 30))
                 AS i (workspace, hash, role, joined_at)
             JOIN workspace w ON w.id = i.workspace JOIN console_user u ON u.password_hash = i.hash;
         INSERT INTO recovery_code SELECT rowid, decode(repeat('00', 32), 'hex') FROM console_user WHERE email LIKE 'ada%'",
    ];
    for statements in first_version {
        postgres.sql(database, statements).await;
    }
    assert_eq!(Database::new(postgres.server(database)).migrate().await.unwrap(), Database::VERSION - 1);
    let users = Admin::open(&postgres.server(database)).await.unwrap().users(None).await.unwrap();
    let found: Vec<_> = users.iter().map(|u| (u.workspace.as_str(), u.email.as_str(), u.role)).collect();
    let expected = [("first", "bob@example.com", Role::Admin), ("second", "ada@example.com", Role::Member)];
    assert_eq!(found, expected);
    let ada = &users[1];
    assert_eq!((ada.password_hash.as_str(), ada.recovery_codes), ("$ada", 1));
    assert_eq!(ada.totp.as_ref().map(|totp| totp.last_step), Some(3));
}
