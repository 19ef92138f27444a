//! Backups of a directory in use, and their restoration.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use enrich_sqlite::{DataDir, SqliteError, accounts, complete};

use crate::people::Directory;
use crate::world::{Files, START, message, totals, workspace};

#[test]
fn each_backup_during_commits_is_intact() {
    let files = Files::with_credits(0);
    let checkpoints = files.sql();
    // A checkpoint writes the first and the last pages of the file. To copy the pages between them takes longer.
    let grants = "PRAGMA synchronous = OFF;
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 100)
        INSERT INTO credit_grant (workspace, credits, reason, at)
        SELECT w.rowid, 1, hex(zeroblob(100000)), 0 FROM workspace w JOIN n;
        UPDATE workspace SET granted = 100";
    checkpoints.execute_batch(grants).unwrap();
    thread::scope(|scope| {
        let backups = scope.spawn(|| {
            for n in 0..20 {
                let backup = files.path(&format!("../backup-{n}"));
                files.dir.copy_to(&backup).unwrap();
                let backup = DataDir::open(backup).unwrap();
                let audit = complete(accounts(&backup).unwrap().audit()).unwrap();
                assert!(audit.reconciles());
            }
        });
        let mut admin = files.admin();
        while !backups.is_finished() {
            complete(admin.grant(&workspace("demo"), 1, START)).unwrap();
            checkpoints.query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).unwrap();
        }
    });
}

#[test]
fn accepts_empty_target_and_rejects_other_files() {
    let files = Files::with_credits(10);
    let target = files.path("../target");
    fs::create_dir(&target).unwrap();
    // The remains of ext4's tools and of a copy that was killed, in a directory that cannot be replaced.
    fs::create_dir(target.join("lost+found")).unwrap();
    fs::create_dir(target.join("copy.partial")).unwrap();
    fs::write(target.join("copy.partial/accounts.db"), "incomplete").unwrap();
    let opened = fs::File::open(&target).unwrap();
    files.dir.copy_to(&target).unwrap();
    assert_eq!(names_in(&target), ["accounts.db", "lost+found"]);
    assert_eq!(
        opened.metadata().unwrap().ino(),
        fs::metadata(&target).unwrap().ino(),
        "the directory is filled"
    );
    let mut copy = accounts(&DataDir::open(&target).unwrap()).unwrap();
    assert_eq!(totals(complete(copy.balance(&workspace("demo"))).unwrap()), (10, 0, 0));
    let refused = files.dir.copy_to(&target);
    assert_eq!(
        message(refused),
        format!("{} is not empty; choose another directory, or move its files away", target.display())
    );
    fs::write(files.path("../file"), "").unwrap();
    assert!(matches!(files.dir.copy_to(&files.path("../file")), Err(SqliteError::File { .. })));
}

#[test]
fn failed_copy_leaves_nothing() {
    let files = Files::with_credits(10);
    fs::write(files.path("people.db"), [b'x'; 8192]).unwrap();
    let target = files.path("../target");
    assert!(matches!(files.dir.copy_to(&target), Err(SqliteError::PeopleKey(_))));
    fs::create_dir(files.path("people.key")).unwrap(); // it cannot be read
    assert!(matches!(files.dir.copy_to(&target), Err(SqliteError::File { .. })));
    fs::remove_dir(files.path("people.key")).unwrap();
    fs::write(files.path("people.key"), "07".repeat(16)).unwrap();
    fs::write(files.path("people.db"), "").unwrap();
    let error = message(files.dir.copy_to(&target));
    assert!(
        error.contains("people.db is damaged: it has no tables (if no people or opt-outs were"),
        "{error}"
    );
    fs::write(files.path("people.db"), [b'x'; 8192]).unwrap();
    let error = message(files.dir.copy_to(&target));
    assert!(error.contains("people.db is damaged: file is not a database; restore"), "{error}");
    assert_eq!(names_in(&files.path("..")), ["data"]);
}

#[test]
fn replaces_incomplete_copy_of_killed_process() {
    let files = Files::with_credits(10);
    let (target, partial) = (files.path("../target"), files.path("../target.partial"));
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("accounts.db"), "incomplete").unwrap();
    files.dir.copy_to(&target).unwrap();
    assert_eq!(names_in(&files.path("..")), ["data", "target"]);

    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("other"), "").unwrap();
    let second = files.path("../second");
    fs::rename(&partial, files.path("../second.partial")).unwrap();
    let error = message(files.dir.copy_to(&second));
    assert!(error.contains("second.partial"), "{error}");
    assert!(files.path("../second.partial/other").exists(), "it removes no other files");
}

#[test]
fn one_of_two_copies_to_one_target_succeeds_and_is_complete() {
    let Directory { people, files } = Directory::new();
    files.create_workspace("demo", 10);
    for (n, is_inside) in (0..20).map(|n| (n, n % 2 == 0)) {
        let target = files.path(&format!("../target-{n}"));
        if is_inside {
            fs::create_dir(&target).unwrap();
        }
        let copy = || files.dir.copy_to(&target);
        let copies =
            thread::scope(|scope| [(); 2].map(|()| scope.spawn(copy)).map(|copy| copy.join().unwrap()));
        assert_eq!(copies.iter().filter(|copy| copy.is_ok()).count(), 1, "{copies:?}");
        for error in copies.into_iter().filter_map(Result::err) {
            assert!(matches!(error, SqliteError::Copying(_) | SqliteError::NotEmpty(_)), "{error}");
        }
        assert_eq!(names_in(&target), ["accounts.db", "people.db", "people.key"]);
        let mode = |name| fs::metadata(target.join(name)).unwrap().mode() & 0o777;
        assert_eq!(["accounts.db", "people.db", "people.key"].map(mode), [0o600; 3]);
        assert!(is_inside || mode(".") == 0o700);
        let checks = DataDir::open(&target).unwrap().check_files().unwrap();
        assert!(checks.iter().all(|check| check.errors.is_empty()), "{checks:?}");
        fs::remove_dir_all(target).unwrap();
        assert_eq!(names_in(&files.path("..")), ["data"]);
    }
    drop(people);
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
