//! Commands that wait for the writer of a server.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::world::{Files, START, totals, workspace};

/// SQLite's own busy timeout sleeps 100 ms between later attempts. With commits at this interval it misses each gap until the
/// command fails.
#[test]
fn commands_wait_for_short_gaps_between_commits() {
    const COMMIT: Duration = Duration::from_millis(47);
    const GAP: Duration = Duration::from_millis(3);
    let files = Files::with_credits(0);
    let (is_done, is_locked) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut db = Connection::open(files.path("accounts.db")).unwrap();
            db.busy_timeout(Duration::from_secs(5)).unwrap();
            let mut is_first = true;
            while !is_done.load(Ordering::Relaxed) {
                let commit = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                if std::mem::take(&mut is_first) {
                    is_locked.wait();
                }
                thread::sleep(COMMIT);
                commit.commit().unwrap();
                thread::sleep(GAP);
            }
        });
        is_locked.wait();
        let granted = (0..30).all(|_| files.admin().grant(&workspace("demo"), 1, START).is_ok());
        is_done.store(true, Ordering::Relaxed);
        assert!(granted);
    });
    assert_eq!(totals(files.on_disk()), (30, 0, 0));
}
