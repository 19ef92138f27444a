//! Another session locks a table for longer than all timeouts, as `VACUUM FULL` and `ALTER TABLE` do, or uses
//! the connections of the server.

use std::time::Duration;

use enrich_lib::credit::{HoldOutcome, Settlement};
use enrich_lib::email::Email;
use enrich_lib::ports::Credits;
use enrich_lib::resolver::OptOuts;
use enrich_postgres::{Config, People};
use enrich_store::{EmailHasher, Ledger as _};
use enrich_tests::eventually;
use enrich_tests::servers::Postgres;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::failover::{RECOVERY, recovers};
use super::world::{Node, TIMEOUT, World, demo, opened};

/// A table, what does not need it (`k`: read a key, `h`: hold, `s`: spend, `r`: hold the only credit of a workspace,
/// and release it, `p`: find a person), and whether the node is ready while the table is locked.
const TABLES: [(&str, &str, bool); 12] = [
    ("usage_day", "khsrp", true),
    ("settlement", "khp", false),
    ("credit_spend", "kp", false),
    ("credit_receipt", "khp", false),
    ("credit_hold", "kp", false),
    ("balance", "kp", false),
    ("workspace", "p", false),
    // Keys that are cached remain usable.
    ("api_key", "hsrp", true),
    ("revision", "khsrp", false),
    ("person", "khsr", false),
    ("opt_out", "khsr", false),
    ("people_key", "khsr", false),
];

const OPERATIONS: &str = "khsrp";

/// How long a table is locked.
fn locked() -> Duration {
    Duration::from_secs(if std::env::var_os("ENRICH_TEST_LONG").is_some() { 30 } else { 6 })
}

/// One more than the documented number: the server may still end the process of a connection that was closed.
const BACKENDS_MAX: i64 = Config::CONNECTIONS as i64 + 1;

#[tokio::test(flavor = "multi_thread")]
async fn locked_table_affects_only_what_needs_it() {
    let postgres = Postgres::start_with(&["max_connections=200"], &[]);
    assert_eq!(Config::CONNECTIONS, 8, "as install.md states");
    let failures: Vec<String> = join_all(TABLES.iter().map(|table| lock(&postgres, table))).await.concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Locks one table in a database of its own. Returns what should not have happened.
async fn lock(postgres: &Postgres, &(table, others, is_ready): &(&str, &str, bool)) -> Vec<String> {
    let world = World::on(postgres, 10_000).await;
    let key = world.key(1).await;
    world.workspace("last", 1).await;
    let node = world.node().await;
    let server = world.server();
    let hasher = EmailHasher::new([7; 16]);
    let people = opened(async || People::open(server.clone(), TIMEOUT, hasher.clone(), 0.5).await).await;
    let email = Email::parse("ada@example.com").unwrap();
    let works = async |operation| match operation {
        'k' => node.accepts(&key).await.is_ok(),
        'h' => world.hold(&node, 1).await.1.is_ok(),
        's' => world.spend(&node).await.is_ok(),
        'r' => {
            let hold = world.lookup_of(&node, "last");
            node.ledger.hold(&hold).await.is_ok_and(|outcome| outcome == HoldOutcome::Granted)
                && node.ledger.settle(&hold, Settlement::Release).await.is_ok()
        }
        _ => people.contains(&email).await.is_ok(),
    };
    let checks = || node.ledger.check().and_then(|()| Ok(people.check()?)).err();
    let (locker, reader) =
        (world.begin(&format!("LOCK TABLE {table}")).await, postgres.client(&world.database).await);
    let (locked_at, mut failures, mut backends_max) = (Instant::now(), Vec::new(), 0);
    let sampling = async {
        let select = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'enrich'";
        while locked_at.elapsed() < locked() {
            let count = reader.query_one(select, &[]).await.unwrap().get(0);
            backends_max = backends_max.max(count);
            sleep(Duration::from_millis(20)).await; // the interval of samples
        }
        checks()
    };
    let asking = async {
        while locked_at.elapsed() < locked() {
            // All, so that each of their statements meets the lock.
            let results = join_all(OPERATIONS.chars().map(&works)).await;
            let failed =
                OPERATIONS.chars().zip(results).filter(|(name, works)| others.contains(*name) && !works);
            failures.extend(failed.map(|(name, _)| format!("{table} is locked: {name} fails")));
        }
    };
    let (check, ()) = tokio::join!(sampling, asking);
    if check.is_none() != is_ready {
        failures.push(format!("{table} is locked: the check is {check:?}"));
    }
    if backends_max > BACKENDS_MAX {
        failures.push(format!("{table} is locked: {backends_max} backends"));
    }
    locker.batch_execute("COMMIT").await.unwrap();
    let unlocked_at = Instant::now();
    eventually("all works", async || {
        let is_late = unlocked_at.elapsed() > RECOVERY;
        let all_works = join_all(OPERATIONS.chars().map(&works)).await == [true; 5] && checks().is_none();
        assert!(all_works || !is_late, "{table} was locked: not all works within {RECOVERY:?}");
        all_works
    })
    .await;
    // The node notices the lock and its end also without a lookup.
    for (statements, expected) in
        [(format!("BEGIN; LOCK TABLE {table}"), is_ready), ("COMMIT".to_owned(), true)]
    {
        locker.batch_execute(&statements).await.unwrap();
        eventually(&format!("{table}: {statements}"), async || checks().is_none() == expected).await;
    }
    failures
}

/// A server can have room for some of the connections of a node.
#[tokio::test(flavor = "multi_thread")]
async fn node_without_all_connections_is_not_ready() {
    let postgres = Postgres::start();
    let world = World::on(&postgres, 10).await;
    world
        .sql(
            "CREATE ROLE limited LOGIN CONNECTION LIMIT 3; GRANT ALL ON ALL TABLES IN SCHEMA public TO limited;
             GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO limited",
        )
        .await;
    let url = postgres.tcp_url(&world.database).replace("postgres@", "limited@");
    let node: Node = world.node_at(&url, TIMEOUT).await;
    eventually("the node is not ready", async || {
        node.ledger.check().is_err_and(|error| {
            let error = error.to_string();
            error.contains("(53300); raise the limit on connections") && !error.contains("check that it runs")
        })
    })
    .await;
    world.sql("ALTER ROLE limited CONNECTION LIMIT 8").await;
    recovers(&world, &node).await;
    eventually("the node is ready", async || node.ledger.check().is_ok()).await;
}

/// The web application does not use them again. A commit that waits for a standby has no timeout.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_whose_operation_was_cancelled_are_not_current() {
    let world = World::with_credits(9).await;
    let mut accounts = world.admin().await;
    accounts.balance(&demo()).await.unwrap();
    assert!(accounts.is_current());
    assert!(accounts.balance(&demo()).now_or_never().is_none());
    assert!(!accounts.is_current());
}
