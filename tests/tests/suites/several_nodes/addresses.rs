//! Server addresses, migrations, and TLS with certificate verification.

use std::str::FromStr;

use enrich_postgres::{Database, Ledger, PostgresError, Server};
use enrich_store::StoreError;
use enrich_tests::contract::START;
use enrich_tests::servers::Postgres;
use rcgen::{CertifiedKey, generate_simple_self_signed};

#[tokio::test]
async fn connects_to_a_server_with_a_trusted_certificate() {
    let (postgres, certificate) = with_tls();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let options = format!("?sslmode={mode}&sslrootcert={}", file.path().display());
        let server = Server::from_str(&(postgres.tcp_url("postgres") + &options)).unwrap();
        Database::new(server).migrate().await.unwrap();
    }
    let used = postgres.client("postgres").await;
    let select = "SELECT count(*) FROM pg_stat_ssl WHERE ssl";
    let server =
        postgres.tcp_url("postgres") + &format!("?sslmode=require&sslrootcert={}", file.path().display());
    let ledger = Ledger::open(server.parse().unwrap(), Default::default(), START).await.unwrap();
    let over_tls: i64 = used.query_one(select, &[]).await.unwrap().get(0);
    assert!(over_tls > 0);
    drop(ledger);
}

#[tokio::test]
async fn rejects_a_server_with_an_untrusted_certificate() {
    let (postgres, _) = with_tls();
    for mode in ["", "?sslmode=prefer", "?sslmode=require"] {
        let server = Server::from_str(&(postgres.tcp_url("postgres") + mode)).unwrap();
        let error = Database::new(server).migrate().await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let server = Server::from_str(&(postgres.tcp_url("postgres") + "?sslmode=disable")).unwrap();
    Database::new(server).migrate().await.unwrap();
}

#[tokio::test]
async fn rejects_a_database_without_tables() {
    let postgres = Postgres::shared();
    postgres.sql("postgres", "CREATE DATABASE bare").await;
    let error = Ledger::open(postgres.server("bare"), Default::default(), START).await.unwrap_err();
    assert!(matches!(error, PostgresError::NotMigrated { found: 0, .. }), "{error}");
    assert_eq!(Database::new(postgres.server("bare")).migrate().await.unwrap(), Database::VERSION);
    assert_eq!(Database::new(postgres.server("bare")).migrate().await.unwrap(), 0);
    postgres.sql("bare", "INSERT INTO migration VALUES (99)").await;
    let error = Ledger::open(postgres.server("bare"), Default::default(), START).await.unwrap_err();
    assert!(matches!(error, PostgresError::Store(StoreError::NewerSchema(_))), "{error}");
}

#[tokio::test]
async fn concurrent_migrations_run_one_after_the_other() {
    let postgres = Postgres::shared();
    postgres.sql("postgres", "CREATE DATABASE twice").await;
    let (one, two) = (Database::new(postgres.server("twice")), Database::new(postgres.server("twice")));
    let (one, two) = tokio::join!(one.migrate(), two.migrate());
    assert_eq!(one.unwrap() + two.unwrap(), Database::VERSION);
}

#[test]
fn invalid_address_is_not_printed() {
    for address in [
        "mysql://me:hunter2@localhost/x",
        "postgres://me:hunter2@localhost:port/x",
        "postgres://me:hunter2@localhost/x?huh=hunter2",
        "postgres://me:hunter2@one,two/x",
        "postgres://me:hunter2@localhost/x?sslmode=allow",
    ] {
        let error = Server::from_str(address).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hun"), "{error}");
    }
    let server = Server::from_str("postgres://me:hunter2@localhost/x").unwrap();
    assert!(!format!("{server:?}").contains("hunter2"), "{server:?}");
}

/// Starts a server with a self-signed certificate and returns both.
fn with_tls() -> (Postgres, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
    let postgres = Postgres::start_with(&["ssl=on"], &[("server.crt", &certificate), ("server.key", &key)]);
    (postgres, certificate)
}
