//! The outcome of a spend whose statement fails, or whose commit waits for a standby.

use std::time::Duration;

use enrich_store::Ledger as _;
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::Postgres;
use tokio::time::timeout;

use super::world::{TIMEOUT, World, demo, url};

/// Longer than a spend waits to be sent.
const OUTAGE: Duration = Duration::from_secs(7);

/// The time in which a spend in doubt is decided while nothing prevents it.
const MOMENT: Duration = Duration::from_secs(2);

/// The outcome of a spend whose statement fails once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The statement had no effect, and is repeated.
    Repeated,
    /// The spend is invalid.
    Failed,
    /// The statement may have had an effect: its hold is ended.
    InDoubt,
}

/// The errors that a server can report, each once for the spend of another lookup.
#[tokio::test(flavor = "multi_thread")]
async fn each_error_of_a_statement_has_its_outcome() {
    use Outcome::{Failed, InDoubt, Repeated};
    let raise = |code: &str| format!("RAISE EXCEPTION 'no' USING ERRCODE = '{code}'");
    let errors = [
        ("22003", Failed),   // numeric_value_out_of_range
        ("23514", Failed),   // check_violation
        ("25006", Repeated), // read_only_sql_transaction
        ("40001", Repeated), // serialization_failure
        ("40P01", Repeated), // deadlock_detected
        ("42501", Repeated), // insufficient_privilege
        ("42883", Repeated), // undefined_function
        ("53100", Repeated), // disk_full
        ("53200", Repeated), // out_of_memory
        ("55P03", Repeated), // lock_not_available
        ("57014", Repeated), // query_canceled
        ("08006", InDoubt),  // connection_failure, of a pooler
        ("26000", InDoubt),  // invalid_sql_statement_name, of a pooler
        ("40003", InDoubt),  // statement_completion_unknown
        ("57P01", InDoubt),  // admin_shutdown
        ("58030", InDoubt),  // io_error
        ("P0001", InDoubt),  // raise_exception
        ("XX000", InDoubt),  // internal_error
    ];
    let mut causes: Vec<_> = errors.map(|(code, outcome)| (raise(code), outcome)).into();
    // An error of severity FATAL.
    causes.push(("PERFORM pg_terminate_backend(pg_backend_pid())".to_owned(), InDoubt));
    let world = World::with_credits(100).await;
    world
        .sql(
            "CREATE TABLE cause (n bigint PRIMARY KEY, statement text); CREATE SEQUENCE failures;
             CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('failures') = 1 THEN EXECUTE (SELECT statement FROM cause); END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER fails_once BEFORE INSERT ON credit_spend FOR EACH ROW EXECUTE FUNCTION fail_once()",
        )
        .await;
    let node = world.node_with(Duration::from_secs(2)).await;
    let mut spent = 0;
    for (cause, outcome) in causes {
        let statement = format!("DO $cause$ BEGIN {cause}; END $cause$").replace('\'', "''");
        let cause_row = format!("DELETE FROM cause; INSERT INTO cause VALUES (1, '{statement}')");
        world.sql(&format!("{cause_row}; ALTER SEQUENCE failures RESTART")).await;
        let hold = world.holding(&node, 1).await;
        let result = node.begin_spend(&hold).await.unwrap();
        let actual = match &result {
            Ok(()) => Repeated,
            Err(error) if error.to_string().contains("no hold") => InDoubt,
            Err(_) => Failed,
        };
        assert_eq!(actual, outcome, "{cause}: {result:?}");
        if outcome == Failed {
            assert_eq!(node.ledger.statistics().commits.failed, 0, "{cause}");
        }
        spent += i64::from(result.is_ok());
        assert_eq!(world.totals().await[..2], [100, spent], "{cause}");
    }
}

/// The server ends with a PANIC when a sync of its log fails, and executes the commit when it starts again.
#[tokio::test(flavor = "multi_thread")]
async fn spend_whose_commit_panics_has_no_answer_until_the_server_is_back() {
    // The commit of a spend is the next sync: nothing else writes the log meanwhile.
    let mut postgres = Postgres::start_on_failing_disk(&["wal_writer_delay=10s"]);
    let world = World::on(&postgres, 10).await;
    let database = world.database.clone();
    let mut node = world.node().await;
    let first = world.holding(&node, 2).await;
    node.begin_spend(&first).await.unwrap().unwrap();
    let hold = world.holding(&node, 3).await;
    node.stop_ticking().await;
    world.sql("CREATE TABLE durable ()").await; // so that the commit of the spend is the next sync
    postgres.fail_next_sync();
    let settling = node.begin_spend(&hold);
    eventually("the server has ended", async || !postgres.is_running()).await;
    let mut settling = std::pin::pin!(settling);
    let early = timeout(OUTAGE, &mut settling).await;
    assert!(early.is_err(), "its outcome is not known: {early:?}");
    postgres.kill();
    postgres.restart();
    settling.await.unwrap().unwrap();
    assert_eq!(postgres.numbers(&database, "SELECT spent FROM account").await, [5]);
}

/// How a commit that waits for the standby becomes visible on the primary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Interruption {
    /// An operator calls this function with the backend.
    Called(&'static str),
    Restarted,
}

/// The fate of the standby.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Standby {
    Returns,
    IsPromoted,
}

/// While the standby is away, a spend is committed on the primary alone. It is answered when the standby has
/// it, and fails if the standby is promoted without it.
#[tokio::test(flavor = "multi_thread")]
async fn spend_is_answered_when_the_synchronous_standby_has_it() {
    for (interruption, end) in [
        (Interruption::Called("pg_terminate_backend"), Standby::Returns),
        (Interruption::Called("pg_terminate_backend"), Standby::IsPromoted),
        (Interruption::Called("pg_cancel_backend"), Standby::Returns),
        (Interruption::Called("pg_cancel_backend"), Standby::IsPromoted),
        (Interruption::Restarted, Standby::IsPromoted),
    ] {
        let case = (interruption, end);
        let mut primary = Postgres::start();
        let world = World::on(&primary, 10).await;
        let database = world.database.clone();
        world.sql(&format!("ALTER DATABASE {database} SET client_min_messages = error")).await;
        let mut standby = primary.start_standby();
        primary.require_standby().await;
        let mut node = world.node_at(&url(&database, &[primary.port(), standby.port()]), TIMEOUT).await;
        let first = world.holding(&node, 1).await;
        node.begin_spend(&first).await.unwrap().unwrap();
        let hold = world.holding(&node, 3).await;
        node.stop_ticking().await;
        world.sql("CREATE TABLE durable ()").await; // a synchronous commit, and thus the hold
        standby.kill();
        let mut settling = node.begin_spend(&hold);
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        eventually("its commit waits", async || primary.numbers(&database, waiting).await == [1]).await;
        match interruption {
            Interruption::Called(function) => {
                let call =
                    format!("SELECT {function}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
                world.sql(&call).await;
            }
            Interruption::Restarted => {
                drop(world);
                primary.kill();
                primary.restart();
            }
        }
        let spends = "SELECT count(*) FROM credit_spend";
        eventually("it is committed", async || primary.numbers(&database, spends).await == [2]).await;
        let early = timeout(MOMENT, &mut settling).await;
        assert!(early.is_err(), "{case:?}: the standby lacks it: {early:?}");
        let waiting = primary.numbers(&database, waiting).await[0];
        assert!(waiting <= 1, "{case:?}: {waiting} statements wait for the standby");
        let spent = match end {
            Standby::Returns => {
                standby.restart();
                settling.await.unwrap().unwrap();
                4
            }
            Standby::IsPromoted => {
                primary.kill();
                standby.restart();
                standby.promote().await;
                assert!(settling.await.unwrap().is_err(), "{case:?}");
                1
            }
        };
        let server = if end == Standby::Returns { &primary } else { &standby };
        assert_eq!(server.numbers(&database, "SELECT spent FROM account").await, [spent], "{case:?}");
    }
}

/// A failover could lose the change.
#[tokio::test(flavor = "multi_thread")]
async fn change_of_an_operator_that_no_standby_has_is_an_error() {
    let primary = Postgres::start();
    let world = World::on(&primary, 10).await;
    let database = world.database.clone();
    let mut standby = primary.start_standby();
    primary.require_standby().await;
    let mut admin = world.admin().await;
    let demo = demo();
    admin.grant(&demo, 1, START).await.unwrap();
    standby.kill();
    let (granted, ()) = tokio::join!(admin.grant(&demo, 5, START), async {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        eventually("its commit waits", async || primary.numbers(&database, waiting).await == [1]).await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        world.sql(cancel).await;
    });
    assert!(granted.unwrap_err().to_string().contains("a failover can lose it"));
    standby.restart();
    admin.grant(&demo, 7, START).await.unwrap();
    assert_eq!(world.totals().await[0], 10 + 1 + 5 + 7);
}
