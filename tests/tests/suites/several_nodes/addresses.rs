//! Server addresses, migrations, and TLS with certificate verification.

use std::str::FromStr;
use std::time::Duration;

use enrich_postgres::{Ledger, PostgresError, Schema, Server, accounts_for_pages};
use enrich_store::Clocks;
use enrich_tests::contract::START;
use enrich_tests::servers::{Pooler, Postgres, Proxy};
use futures_util::future::join_all;
use rcgen::{
    CertificateParams, CertifiedKey, DistinguishedName, DnType, KeyPair, generate_simple_self_signed,
};
use tokio::time::timeout;

#[tokio::test]
async fn connects_to_a_server_with_a_trusted_certificate() {
    let (postgres, certificate) = with_tls();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let options = format!("?sslmode={mode}&sslrootcert={}", file.path().display());
        migrate(&postgres, &options).await.unwrap();
    }
    let used = postgres.client("postgres").await;
    let options = format!("?sslmode=require&sslrootcert={}&application_name=node", file.path().display());
    let server = postgres.tcp_url("postgres") + &options;
    // Without the sessions of the migrations.
    let select = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                  WHERE ssl AND application_name = 'node'";
    let ledger =
        Ledger::open(server.parse().unwrap(), Default::default(), Clocks::simulated(START)).await.unwrap();
    let over_tls: i64 = used.query_one(select, &[]).await.unwrap().get(0);
    assert!(over_tls > 0);
    drop(ledger);
}

#[tokio::test]
async fn rejects_a_server_with_an_untrusted_certificate() {
    let (postgres, _) = with_tls();
    for mode in ["", "?sslmode=prefer", "?sslmode=require"] {
        let error = migrate(&postgres, mode).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    migrate(&postgres, "?sslmode=disable").await.unwrap();
}

#[tokio::test]
async fn rejects_a_database_without_tables_or_of_another_encoding() {
    let postgres = Postgres::shared();
    let bare = postgres.create_empty_database().await;
    let error =
        Ledger::open(postgres.server(&bare), Default::default(), Clocks::simulated(START)).await.unwrap_err();
    assert!(matches!(error, PostgresError::NotMigrated { found: 0, .. }), "{error}");
    // The last one is the first schema of the search path from then on.
    let schema = "CREATE SCHEMA AUTHORIZATION current_user";
    for (statement, found) in [("", 0), ("", Schema::VERSION), (schema, Schema::VERSION)] {
        postgres.sql(&bare, statement).await;
        assert_eq!(Schema::new(postgres.server(&bare)).migrate().await.unwrap(), found);
    }
    let latin1 = format!("{bare}_latin1");
    let options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    postgres.sql("postgres", &format!("CREATE DATABASE {latin1} {options}")).await;
    let error = Schema::new(postgres.server(&latin1)).migrate().await.unwrap_err();
    assert!(matches!(&error, PostgresError::Encoding(encoding) if encoding == "LATIN1"), "{error}");
}

#[tokio::test]
async fn concurrent_migrations_run_one_after_the_other() {
    let postgres = Postgres::shared();
    let database = postgres.create_empty_database().await;
    let [one, two] = [(); 2].map(|()| Schema::new(postgres.server(&database)));
    let (one, two) = tokio::join!(one.migrate(), two.migrate());
    assert_eq!(one.unwrap() + two.unwrap(), Schema::VERSION);
}

#[test]
fn invalid_address_is_not_printed() {
    for address in [
        "mysql://me:hunter2@localhost/x",
        "postgres://me:hunter2@localhost:port/x",
        "postgres://me:hunter2@localhost/x?huh=hunter2",
        "postgres://me:hunter2@localhost/x?sslmode=hunter2",
        "postgres://me:hunter2@one,,two/x",
        "postgres://me:hunter2@/x",
        // Special characters that are not percent-encoded.
        "postgres://me:hun@ter2@localhost/x",
        "postgres://me:hun/ter2@localhost/x",
        "postgres://me:12/hunter2@localhost/x",
        "postgres://me:12?hunter2@localhost/x",
        "postgres://me:12?hunter2=@localhost/x",
        "postgres://me:12#hunter2@localhost/x",
        "postgres://localhost/x?user=me&password=1&hunter2=3",
    ] {
        let error = Server::from_str(address).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hun"), "{error}");
    }
    for (address, shown) in [
        ("postgres://me:hunter2@localhost/x", "postgres://me@localhost:5432/x"),
        (
            "postgres://me:hunter2@one,two:5433,[::1]:5434/x?target_session_attrs=read-write",
            "postgres://me@one:5432,two:5433,[::1]:5434/x",
        ),
        (
            "postgresql://me@/x?host=one,two&port=5432,5433&password=hunter2",
            "postgres://me@one:5432,two:5433/x",
        ),
        ("postgres://me:hun%40%2Fter2@localhost/x", "postgres://me@localhost:5432/x"),
        // The user, the database and the search path select other tables, so they are shown.
        ("postgres://me@localhost/x?user=you&dbname=y", "postgres://you@localhost:5432/y"),
        (
            "postgres://me@localhost?options=-csearch_path%3Dy",
            "postgres://me@localhost:5432/me?options=-csearch_path=y",
        ),
    ] {
        let server = Server::from_str(address).unwrap();
        assert_eq!(server.to_string(), shown);
        assert!(!format!("{server:?}").contains("hun"), "{server:?}");
    }
}

#[test]
fn option_that_cannot_be_honoured_is_refused_by_its_name() {
    for (option, value) in [
        ("target_session_attrs", "any"),
        ("target_session_attrs", "read-only"),
        ("target_session_attrs", "standby"),
        ("load_balance_hosts", "random"),
        ("hostaddr", "127.0.0.1"),
        ("gssencmode", "require"),
        ("sslnegotiation", "direct"),
        ("sslmode", "allow"),
        ("connect_timeout", "soon"),
        ("connect_timeout", "0"),
        ("keepalives", "yes"),
        ("keepalives_idle", "-1"),
        ("keepalives_count", "0"),
        ("tcp_user_timeout", "-1"),
        ("sslcert", "/certificate.pem"),
        ("sslrootcert", "/missing.pem"),
    ] {
        let error = Server::from_str(&format!("postgres://me@localhost/x?{option}={value}")).unwrap_err();
        assert!(error.to_string().contains(option), "{option}: {error}");
    }
}

#[tokio::test]
async fn honours_the_options_of_a_connection() {
    let postgres = Postgres::shared();
    let database = postgres.create_database().await;
    let options = "?application_name=billing&options=-c%20work_mem=123kB&connect_timeout=1&keepalives=1&keepalives_idle=7\
        &keepalives_interval=2&keepalives_count=4&tcp_user_timeout=3000&target_session_attrs=primary";
    let server = Server::from_str(&(postgres.tcp_url(&database) + options)).unwrap();
    let ledger = Ledger::open(server, Default::default(), Clocks::simulated(START)).await.unwrap();
    let select = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'billing' AND datname = '{database}'"
    );
    assert!(postgres.numbers("postgres", &select).await[0] > 0);
    drop(ledger);
}

#[tokio::test]
async fn pages_use_a_pooler_in_transaction_mode() {
    let postgres = Postgres::shared();
    let pooler = Pooler::start(postgres.port());
    let server = pooler.url(&postgres.create_database().await).parse().unwrap();
    // More than the connections of the pooler, so that it changes those of each between statements.
    for opened in join_all((0..50).map(|_| accounts_for_pages(&server))).await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn connecting_to_a_silent_server_ends_after_the_timeout_of_the_address() {
    let proxy = Proxy::start(1).await;
    proxy.lose_all();
    let address = format!("postgres://me@127.0.0.1:{}/x?connect_timeout=1", proxy.port());
    let database = Schema::new(Server::from_str(&address).unwrap());
    let error = timeout(Duration::from_secs(10), database.migrate()).await.unwrap().unwrap_err();
    assert!(matches!(error, PostgresError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn presents_a_client_certificate() {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "postgres");
    let mut client = CertificateParams::new(Vec::new()).unwrap();
    client.distinguished_name = name;
    let client_key = KeyPair::generate().unwrap();
    let client = client.self_signed(&client_key).unwrap().pem();
    let rules = "local all all trust\nhostssl all all all cert\n";
    let (postgres, certificate) =
        with_tls_and(&["ssl_ca_file=clients.crt"], &[("clients.crt", &client), ("pg_hba.conf", rules)]);
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let roots = format!("?sslmode=verify-full&sslrootcert={}", file("root.crt", &certificate));
    let identity = format!(
        "&sslcert={}&sslkey={}",
        file("client.crt", &client),
        file("client.key", &client_key.serialize_pem())
    );
    assert!(migrate(&postgres, &roots).await.is_err(), "the server requires a certificate");
    assert_eq!(migrate(&postgres, &(roots.clone() + &identity)).await.unwrap(), 0);
    let swapped = roots + &identity.replace("client.key", "root.crt");
    let error = Server::from_str(&(postgres.tcp_url("postgres") + &swapped)).unwrap_err();
    assert!(error.to_string().contains("ssl"), "{error}");
}

/// Starts a server with a self-signed certificate and returns both.
fn with_tls() -> (Postgres, String) {
    with_tls_and(&[], &[])
}

fn with_tls_and(settings: &[&str], files: &[(&str, &str)]) -> (Postgres, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
    let files = [&[("server.crt", certificate.as_str()), ("server.key", &key)], files].concat();
    let postgres = Postgres::start_with(&[&["ssl=on"], settings].concat(), &files);
    (postgres, certificate)
}

/// Migrates the database `postgres` over an address with these options.
async fn migrate(postgres: &Postgres, options: &str) -> Result<usize, PostgresError> {
    Schema::new((postgres.tcp_url("postgres") + options).parse().unwrap()).migrate().await
}
