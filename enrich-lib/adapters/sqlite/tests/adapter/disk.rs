//! The content of the files, their versions and their permissions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{DataDir, People, SqliteError, complete};
use enrich_store::Actor;
use enrich_store::records::NewKey;
use rusqlite::{Connection, ffi};

use crate::world::{Files, START, World, key, workspace};

#[test]
fn ledger_and_audit_log_are_append_only() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.spend(&hold).unwrap();
    let sql = world.sql();
    for (statement, reason) in [
        ("UPDATE credit_grant SET credits = 99", "grants are append-only"),
        ("DELETE FROM credit_grant", "grants are append-only"),
        ("UPDATE credit_spend SET credits = 99", "spends are append-only"),
        ("DELETE FROM credit_spend", "spends are append-only"),
        ("UPDATE audit_event SET actor = 'ada'", "the audit log is append-only"),
        ("DELETE FROM audit_event", "the audit log is append-only"),
    ] {
        assert_eq!(sql.execute(statement, []).unwrap_err().to_string(), reason, "{statement}");
    }
}

#[test]
fn opening_current_files_writes_nothing() {
    let files = Files::with_credits(10);
    drop(People::open(&files.dir, 0.8, [7; 16]).unwrap());
    for name in ["accounts.db", "people.db"] {
        let watcher = Connection::open(files.path(name)).unwrap();
        let commits =
            || watcher.pragma_query_value(None, "data_version", |row| row.get::<_, u64>(0)).unwrap();
        let before = commits();
        files.admin();
        People::open(&files.dir, 0.8, [7; 16]).unwrap();
        assert_eq!(commits(), before, "{name}: a disk that is full would refuse it");
    }
}

#[test]
fn stores_no_email_and_no_key() {
    let world = World::with_credits(10);
    let (used, unused) = (key(1), key(2));
    let demo = workspace("demo");
    for (label, key) in [("shop", &used), ("till", &unused)] {
        let new = NewKey::new(&demo, label, key);
        complete(world.admin().create_key(&new, &Actor::operator(START))).unwrap();
    }
    let people = People::open(&world.dir, 0.8, [7; 16]).unwrap();
    // The form of an opt-out differs from the canonical one at some providers only.
    let emails = ["Grace.Quimby+news@Company.com", "Ada.Marlowe+news@Gmail.com", "Otto.Zwist+x@Posteo.net"]
        .map(|email| Email::parse(email).unwrap());
    let mut import = people.import().unwrap();
    for email in &emails {
        import.add(email, &ProfileUrl::from_name("p-4711").unwrap(), 0.9).unwrap();
    }
    import.finish().unwrap();
    people.opt_out(&emails[2..], START).unwrap();
    people.refresh().unwrap();
    // Runs a complete lookup, so that all of its traces are on disk.
    assert!(world.finds(&used));
    let hold = world.hold(1);
    assert_eq!([0, 1, 2].map(|n| people.get(&emails[n]).unwrap().is_some()), [true, true, false]);
    world.spend(&hold).unwrap();
    world.tick(START);

    let secrets = [used.reveal(), unused.reveal(), &used.reveal()[4..], &unused.reveal()[4..]];
    let forms = emails
        .iter()
        .flat_map(|email| [email.as_str().to_lowercase(), email.canonical(), email.opt_out_form()])
        .collect::<BTreeSet<_>>();
    let emails: Vec<_> =
        forms.iter().flat_map(|form| (6..=form.len()).map(|end| &form[end - 6..end])).collect();
    // Check first with the write-ahead logs, then without: closing moves their content into the databases.
    assert_absent(&world, &secrets, &emails);
    assert!(world.path("people.db-wal").exists() && world.path("accounts.db-wal").exists());
    drop(people);
    assert_absent(&world.close(), &secrets, &emails);
}

/// This includes the copies that an earlier change of the records has left.
#[test]
fn overwrites_profiles_of_opted_out_people() {
    let files = Files::new();
    let people = People::open(&files.dir, 0.8, [7; 16]).unwrap();
    let emails: Vec<_> = (0..3_000).map(|n| Email::parse(&format!("otto.{n}@posteo.net")).unwrap()).collect();
    for name in ["otto-zwist", "otto-zwist-since-his-marriage"] {
        let mut import = people.import().unwrap();
        for (n, email) in emails.iter().enumerate() {
            import.add(email, &ProfileUrl::from_name(&format!("{name}-{n}")).unwrap(), 0.9).unwrap();
        }
        import.finish().unwrap();
    }
    people.opt_out(&emails, START).unwrap();
    let stored = fs::read(files.path("people.db")).unwrap();
    assert!(!stored.windows(10).any(|text| text == b"otto-zwist"), "the write-ahead log is applied");
    drop(people);
    assert_absent(&files, &[], &["otto-zwist"]);
}

#[cfg(unix)]
#[test]
fn opening_directory_makes_files_private() {
    use std::os::unix::fs::PermissionsExt;

    let files = Files::with_credits(10);
    People::open(&files.dir, 0.8, [7; 16]).unwrap();
    let _lock = files.dir.lock().unwrap();
    let names = || fs::read_dir(files.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let wide = || {
        names()
            .filter(|path| fs::metadata(path).unwrap().permissions().mode() & 0o077 != 0)
            .collect::<Vec<_>>()
    };
    assert!(names().any(|path| path.ends_with("serve.lock")));
    assert_eq!(wide(), Vec::<PathBuf>::new());
    assert_eq!(fs::metadata(files.dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    let reopens: [fn(&Path) -> bool; 2] =
        [|path| DataDir::open(path).is_ok(), |path| DataDir::create(path).is_ok()];
    for reopen in reopens {
        names().for_each(|path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap());
        assert!(reopen(files.dir.path()));
        assert_eq!(wide(), Vec::<PathBuf>::new());
    }
}

/// Asserts that no file contains one of `exact`, or one of `words` in any case.
fn assert_absent(files: &Files, exact: &[&str], words: &[&str]) {
    for entry in fs::read_dir(files.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let lower = bytes.to_ascii_lowercase();
        let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        for text in exact {
            assert!(!has(&bytes, text), "a key is in {}", path.display());
        }
        for text in words {
            assert!(!has(&lower, text), "{text} is in {}", path.display());
        }
    }
}

#[test]
fn error_of_the_disk_says_what_to_do() {
    for (code, advice) in [
        (ffi::SQLITE_FULL, "free space on the disk"),
        (ffi::SQLITE_READONLY, "writable for this user"),
        (ffi::SQLITE_IOERR_WRITE, "check the disk and its free space"),
    ] {
        let error = SqliteError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(error.to_string().contains(advice), "{error}");
    }
}
