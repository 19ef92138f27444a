//! The lock of a served directory, and commands that wait for the writer of a server.

use std::fs;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use enrich_lib::ports::Credits;
use enrich_sqlite::{SqliteError, complete};
use enrich_store::Ledger as _;
use rusqlite::{Connection, TransactionBehavior};

use crate::people::open;
use crate::world::{Files, START, World, lookup, totals, workspace};

/// The reader stands for a backup or a check.
#[test]
fn closes_in_order_beside_a_reader() {
    let world = World::with_credits(10);
    let reader = world.sql();
    reader.execute_batch("BEGIN; SELECT * FROM workspace").unwrap();
    world.spend(&world.hold(1)).unwrap();
    assert_eq!(world.close().on_disk().spent, 1);
}

#[test]
fn lock_check_fails_after_a_new_database_is_deleted() {
    for (name, is_replaced) in [("accounts.db", false), ("accounts.db", true), ("people.db", false)] {
        let files = Files::new();
        let lock = files.dir.lock().unwrap();
        lock.check().unwrap(); // there are no files yet
        files.create_workspace("demo", 10);
        let _people = open(&files);
        lock.check().unwrap();
        fs::rename(files.path(name), files.path("old")).unwrap();
        if is_replaced {
            fs::copy(files.path("old"), files.path(name)).unwrap();
        }
        assert!(matches!(lock.check(), Err(SqliteError::Replaced(path)) if path == files.path(name)));
    }
}

#[test]
fn lock_check_fails_after_directory_is_replaced() {
    let files = Files::with_credits(10);
    let lock = files.dir.lock().unwrap();
    fs::rename(files.dir.path(), files.path("../old")).unwrap();
    assert!(matches!(lock.check(), Err(SqliteError::Replaced(path)) if path == files.path("serve.lock")));
    fs::create_dir(files.dir.path()).unwrap();
    let new_lock = files.dir.lock().unwrap();
    assert!(matches!(lock.check(), Err(SqliteError::Replaced(_))));
    assert!(new_lock.check().is_ok());
}

/// Otherwise, vendors are queried for lookups that cannot be billed.
#[test]
fn hold_is_refused_while_another_process_does_not_end_its_transaction() {
    let world = World::with_credits(10);
    let [first, second] = [1, 2].map(|n| world.hold(n));
    let other = world.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = world.spend(&first).unwrap_err().to_string();
    assert!(error.contains("another process keeps a lock"), "{error}");
    world.ledger.check().unwrap_err();
    world.drive(world.ledger.hold(&lookup("demo", 3))).unwrap_err();
    other.execute_batch("ROLLBACK").unwrap();
    world.tick(START);
    world.ledger.check().unwrap();
    world.spend(&second).unwrap();
    assert_eq!(totals(world.balance()), (9, 0, 1));
}

/// SQLite's own busy timeout sleeps 100 ms between later attempts. With commits at this interval it misses
/// each gap until the command fails.
#[test]
#[expect(clippy::disallowed_methods, reason = "another process writes at certain times")]
fn commands_wait_for_short_gaps_between_commits() {
    const COMMIT: Duration = Duration::from_millis(47);
    const GAP: Duration = Duration::from_millis(3);
    let files = Files::with_credits(0);
    let mut db = Connection::open(files.path("accounts.db")).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    thread::scope(|scope| {
        let mut grants = None;
        while grants.as_ref().is_none_or(|grants: &ScopedJoinHandle<'_, ()>| !grants.is_finished()) {
            let commit = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            grants.get_or_insert_with(|| {
                scope.spawn(|| {
                    for _ in 0..30 {
                        complete(files.admin().grant(&workspace("demo"), 1, START)).unwrap();
                    }
                })
            });
            thread::sleep(COMMIT);
            commit.commit().unwrap();
            thread::sleep(GAP);
        }
    });
    assert_eq!(totals(files.on_disk()), (30, 0, 0));
}
