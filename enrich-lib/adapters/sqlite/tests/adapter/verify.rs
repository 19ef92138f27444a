//! Damaged files are found before they are served.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use enrich_sqlite::{People, SqliteError, accounts_to_read};

use crate::world::{Files, START, World, message, open_ledger};

/// Copies the files of a directory in use, as after a crash.
fn crashed() -> Files {
    let world = World::with_credits(1_000);
    for n in 0..200 {
        world.create_workspace(&format!("workspace-{n}"), 1);
    }
    world.spend(&world.hold(1)).unwrap();
    let copy = Files::new();
    for name in ["accounts.db", "accounts.db-wal"] {
        fs::copy(world.path(name), copy.path(name)).unwrap();
    }
    assert!(copy.dir.ended_uncleanly(), "the write-ahead log has content");
    fs::copy(world.path("serve.lock"), copy.path("serve.lock")).unwrap();
    copy
}

/// Overwrites pages of the accounts, as a command that opens and closes them leaves them: without a log.
fn damage(files: &Files) {
    drop(files.admin());
    damage_pages(&files.path("accounts.db"), 3);
}

fn damage_pages(path: &Path, first: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for page in first..file.metadata().unwrap().len() / 4096 {
        file.write_all_at(&[0x5a; 2048], page * 4096).unwrap();
    }
}

/// A service manager starts a server that has failed again.
#[test]
fn every_start_refuses_files_that_are_damaged_after_a_crash() {
    let [accounts, people] = [crashed(), crashed()];
    damage(&accounts);
    People::open(&people.dir, People::CONFIDENCE_MIN, [7; 16]).unwrap().opt_out(&[], START).unwrap();
    damage_pages(&people.path("people.db"), 1);
    fs::write(people.path("people.db-wal"), [0; 32]).unwrap();
    for (files, name) in [(&accounts, "accounts.db"), (&people, "people.db")] {
        for _ in 0..3 {
            let error = open_ledger(&files.dir, drop).map(drop).unwrap_err();
            assert!(
                matches!(&error, SqliteError::Damaged { path, .. } if *path == files.path(name)),
                "{error}"
            );
            assert!(error.to_string().ends_with("; restore the data directory from a backup"), "{error}");
        }
    }
}

/// With many people, a start could otherwise take longer than a service manager waits, again and again.
#[test]
fn people_without_changes_are_not_checked_after_an_interrupted_check() {
    let files = crashed();
    drop(files.admin());
    let intact = fs::read(files.path("accounts.db")).unwrap();
    People::open(&files.dir, People::CONFIDENCE_MIN, [7; 16]).unwrap().opt_out(&[], START).unwrap();
    for (name, first) in [("people.db", 1), ("accounts.db", 3)] {
        damage_pages(&files.path(name), first);
    }
    open_ledger(&files.dir, drop).map(drop).unwrap_err();
    fs::write(files.path("accounts.db"), intact).unwrap();
    open_ledger(&files.dir, drop).unwrap();
}

#[test]
fn start_that_fails_before_there_are_accounts_does_not_prevent_the_next_one() {
    let files = Files::new();
    fs::create_dir(files.path("accounts.db")).unwrap();
    open_ledger(&files.dir, drop).map(drop).unwrap_err();
    fs::remove_dir(files.path("accounts.db")).unwrap();
    open_ledger(&files.dir, drop).unwrap();
}

#[test]
fn orderly_end_needs_no_check() {
    let files = World::with_credits(10).close();
    assert!(!files.dir.ended_uncleanly());
}

#[test]
fn check_lists_errors_of_each_file() {
    let files = crashed();
    let checks = files.dir.check_files().unwrap();
    assert_eq!(checks.len(), 1);
    assert_eq!((&checks[0].path, checks[0].errors.len()), (&files.path("accounts.db"), 0));
    let orphan =
        "PRAGMA foreign_keys = OFF; INSERT INTO credit_grant (workspace, credits, at) VALUES (999999, 1, 0)";
    files.sql().execute_batch(orphan).unwrap();
    assert_eq!(
        files.dir.check_files().unwrap()[0].errors,
        ["1 rows of credit_grant refer to missing rows of workspace"]
    );
    damage(&files);
    let errors = &files.dir.check_files().unwrap()[0].errors;
    assert!(!errors.is_empty() && errors.len() <= 10, "{errors:?}");
    // SQLite would delete the log of an empty file.
    let frames = "a header of 32 octets, and frames";
    let [log, people_log] = ["accounts.db-wal", "people.db-wal"].map(|log| (log, frames));
    for (name, content) in [("accounts.db", ""), log, ("people.db", ""), people_log] {
        fs::write(files.path(name), content).unwrap();
    }
    let checks = files.dir.check_files().unwrap();
    assert!(checks[..2].iter().all(|check| check.errors == ["it has no tables"]), "{checks:?}");
    assert_eq!(checks[2].errors, ["is missing"], "people.key");
    ["people.db", "people.db-wal"].iter().for_each(|name| fs::remove_file(files.path(name)).unwrap());
    let refused =
        [accounts_to_read(&files.dir).map(drop), files.dir.copy_to(&files.path("../copy")).map(drop)];
    for error in refused.map(message) {
        assert!(error.contains("accounts.db is damaged: it has no tables"), "{error}");
    }
    assert_eq!(fs::read_to_string(files.path("accounts.db-wal")).unwrap(), frames);
    fs::remove_file(files.path("accounts.db")).unwrap();
    assert_eq!(files.dir.check_files().unwrap()[0].errors, ["is missing"]);
}
