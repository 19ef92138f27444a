//! A file of a data directory that is lost, or empty as after a failure of the file system, is never replaced by a
//! new one: its content would vanish without an error, and the opt-outs with it.

use std::fs;
use std::thread;

use enrich_sqlite::{DataDir, Export, People, SqliteError, accounts, accounts_to_read};
use rusqlite::Connection;

use crate::people::{Directory, find, open, parse};
use crate::world::{Files, START, open_ledger};

/// A command, and the files that it needs.
type Command = (&'static str, &'static [&'static str], fn(&DataDir) -> Result<(), SqliteError>);

const ALL: &[&str] = &["accounts.db", "people.db", "people.key"];
const ACCOUNTS: &[&str] = &["accounts.db"];
const PEOPLE: &[&str] = &["people.db", "people.key"];

/// The remains of a lost file: nothing, an empty file, a part of a key, or another key.
const CONTENTS: [Option<&str>; 4] =
    [None, Some(""), Some("070707070707070707070707070707"), Some("09090909090909090909090909090909")];

const COMMANDS: [Command; 6] = [
    ("change accounts", ACCOUNTS, |dir| accounts(dir).map(drop)),
    ("read accounts", ACCOUNTS, |dir| accounts_to_read(dir).map(drop)),
    ("people", PEOPLE, |dir| people(dir).map(drop)),
    ("serve", ALL, |dir| people(dir).and_then(|_people| open_ledger(dir, drop).map(drop))),
    ("backup", ALL, |dir| dir.copy_to(&dir.path().join("../backup")).map(drop)),
    ("copy", ALL, |dir| Export::begin(dir, "postgres", [1; 16]).map(drop)),
];

fn people(dir: &DataDir) -> Result<People, SqliteError> {
    People::open(dir, 0.8, [9; 16])
}

/// Returns a directory with all files. Without an orderly end, the changes are in the write-ahead logs.
fn directory(is_orderly: bool) -> Files {
    let copy = Files::new();
    let Directory { people, files } = Directory::new();
    people.opt_out(&[parse("ada@posteo.net")], START).unwrap();
    let open = (people, accounts(&files.dir).unwrap());
    files.create_workspace("demo", 10);
    let open = (!is_orderly).then_some(open);
    for entry in fs::read_dir(files.dir.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with("-shm") {
            fs::copy(files.path(&name), copy.path(&name)).unwrap();
        }
    }
    drop(open);
    copy
}

#[test]
fn lost_file_is_named_and_nothing_changes() {
    for n in 0..48 {
        let (file, content) = (ALL[n % 3], CONTENTS[n / 3 % 4]);
        // Alone: of the other files, only the one that shows that this one was lost is left.
        let (is_orderly, is_alone) = (n / 12 % 2 == 1, n / 24 == 1);
        let is_impossible = if file == "people.key" { is_alone } else { CONTENTS[2..].contains(&content) };
        for (command, needed, run) in COMMANDS.iter().filter(|(_, needed, _)| needed.contains(&file)) {
            // Accounts without a log are new: a directory can have only people.
            let is_new = file == "accounts.db" && is_orderly && (is_alone || *command != "read accounts");
            if is_impossible || is_new {
                continue;
            }
            let files = directory(is_orderly);
            match content {
                Some(content) => fs::write(files.path(file), content).unwrap(),
                None => fs::remove_file(files.path(file)).unwrap(),
            }
            let sign = if is_orderly { "people.key".to_owned() } else { format!("{file}-wal") };
            for entry in fs::read_dir(files.dir.path()).unwrap().map(Result::unwrap) {
                if is_alone && entry.file_name() != file && *entry.file_name() != *sign {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
            let read =
                || [fs::read(files.path(file)).ok(), fs::read(files.path(&format!("{file}-wal"))).ok()];
            let before = read();
            let case = format!(
                "{command} of {needed:?}: {file} {content:?}, orderly {is_orderly}, alone {is_alone}"
            );
            let dir = DataDir::open(files.dir.path()).expect(&case);
            let error = run(&dir).expect_err(&case).to_string();
            assert!(error.contains(file) && error.contains("from a backup"), "{case}: {error}");
            assert!(before == read(), "{case}");
            assert!(!files.path("../backup").exists() && !files.path("accounts.moved").exists(), "{case}");
            let checks = files.dir.check_files().unwrap();
            let check = checks.iter().find(|check| check.path.ends_with(file)).unwrap();
            assert_eq!(check.errors.len(), 1, "{case}");
        }
    }
}

/// A file of a newer version, of another program, and that of the other database.
#[test]
fn another_database_is_named() {
    for n in 0..6 {
        let (file, other) = (ALL[n % 2], ALL[1 - n % 2]);
        for (command, _, run) in COMMANDS.iter().filter(|(_, needed, _)| needed.contains(&file)) {
            let files = directory(true);
            let open = || Connection::open(files.path(file)).unwrap();
            let expected = match n / 2 {
                0 => open().pragma_update(None, "user_version", 99).map(|()| "by a newer version"),
                1 => {
                    fs::remove_file(files.path(file)).unwrap();
                    open().execute_batch("CREATE TABLE note (text TEXT)").map(|()| "is another database")
                }
                _ => {
                    Ok(fs::copy(files.path(other), files.path(file)).map(|_| "is another database").unwrap())
                }
            };
            let (expected, case) = (expected.unwrap(), format!("{command}: {file} {n}"));
            let error = run(&files.dir).expect_err(&case).to_string();
            assert!(error.contains(file) && error.contains(expected), "{case}: {error}");
            assert!(files.dir.lock().is_ok(), "{case}: a ledger that was not opened serves nothing");
            let checks = files.dir.check_files().unwrap();
            let errors = checks.iter().filter(|check| !check.errors.is_empty()).collect::<Vec<_>>();
            assert!(errors.len() == 1 && errors[0].path.ends_with(file), "{case}: {errors:?}");
            assert!(errors[0].errors[0].contains(expected), "{case}: {errors:?}");
        }
    }
}

/// A process that creates a directory can be killed after each step.
#[test]
fn creation_continues_after_a_kill() {
    let Directory { people, files } = Directory::new();
    drop(people);
    files.create_workspace("demo", 10);
    let path = |name: &str| files.path(name);
    let steps: [(&str, &dyn Fn()); 5] = [
        ("the key", &|| {}),
        ("a part of the key", &|| fs::rename(path("people.key"), path("people.key.partial")).unwrap()),
        ("the tables", &|| fs::remove_file(path("people.key")).unwrap()),
        ("an empty file", &|| {
            fs::remove_file(path("people.key")).unwrap();
            fs::write(path("people.db"), "").unwrap();
        }),
        ("no tables", &|| {
            fs::remove_file(path("people.key")).unwrap();
            fs::write(path("people.db"), "").unwrap();
            Connection::open(path("people.db")).unwrap().pragma_update(None, "journal_mode", "WAL").unwrap();
        }),
    ];
    for (last, undo) in steps {
        Connection::open(path("people.db")).unwrap().execute("DELETE FROM people_key", []).unwrap();
        undo();
        let checks = files.dir.check_files().unwrap();
        assert!(checks.iter().all(|check| check.errors.is_empty()), "{last}: {checks:?}");
        files.dir.copy_to(&path("../backup")).expect(last);
        fs::remove_dir_all(path("../backup")).unwrap();
        let people = open(&files);
        assert_eq!(find(&people, "ada@posteo.net"), None, "{last}");
        assert_eq!(fs::read_to_string(files.path("people.key")).unwrap(), "07".repeat(16) + "\n", "{last}");
        assert!(!files.path("people.key.partial").exists(), "{last}");
    }
}

#[test]
fn concurrent_creation_makes_one_key() {
    for _ in 0..20 {
        let files = Files::new();
        let keys = thread::scope(|scope| {
            let open =
                |n| People::open(&files.dir, 0.8, [n; 16]).map(|people| *people.hasher().fingerprint());
            let opened = [1, 2, 3, 4].map(|n| scope.spawn(move || open(n)));
            for n in 0..5 {
                files.dir.copy_to(&files.path(&format!("../{n}"))).unwrap();
            }
            opened.map(|opened| opened.join().unwrap().unwrap())
        });
        assert_eq!(keys, [keys[0]; 4]);
    }
}
