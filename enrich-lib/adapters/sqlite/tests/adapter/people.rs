//! Finding people: every spelling of an email finds the same person; untrusted and opted-out people are not
//! found.

use std::sync::Arc;
use std::thread;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{People, SqliteError};
use rusqlite::Connection;

use crate::world::{Files, START};

/// A people directory and its files.
pub(crate) struct Directory {
    pub(crate) people: People,
    pub(crate) files: Files,
}

impl Directory {
    pub(crate) fn new() -> Self {
        let files = Files::new();
        Self::over(files)
    }

    pub(crate) fn over(files: Files) -> Self {
        Self { people: open(&files), files }
    }

    /// Makes all changes visible to lookups.
    pub(crate) fn refresh(&self) {
        self.people.refresh().unwrap();
    }

    /// Imports one row.
    pub(crate) fn import(&self, email: &str, profile: &str, confidence: f64) {
        let mut import = self.people.import().unwrap();
        import.add(&parse(email), &ProfileUrl::from_name(profile).unwrap(), confidence).unwrap();
        import.finish().unwrap();
        self.refresh();
    }

    pub(crate) fn opt_out(&self, email: &str) {
        self.people.opt_out(&[parse(email)], START).unwrap();
        self.refresh();
    }

    pub(crate) fn find(&self, email: &str) -> Option<String> {
        find(&self.people, email)
    }

    /// Opens the directory directly with SQLite.
    fn sql(&self) -> Connection {
        Connection::open(self.files.path("people.db")).unwrap()
    }
}

pub(crate) fn open(files: &Files) -> People {
    People::open(&files.dir, People::CONFIDENCE_MIN, [7; 16]).unwrap()
}

pub(crate) fn parse(email: &str) -> Email {
    Email::parse(email).unwrap()
}

/// Returns the name in the profile's URL.
pub(crate) fn find(people: &People, email: &str) -> Option<String> {
    let found = people.get(&parse(email)).unwrap();
    found.map(|profile| profile.name().to_owned())
}

#[test]
fn opt_out_hides_a_record_that_was_not_deleted() {
    let directory = Directory::new();
    for (email, profile) in [("bea+news@posteo.net", "bea"), ("bob@posteo.net", "bob")] {
        directory.import(email, profile, 1.0);
    }
    let hash = directory.people.hasher().opt_out_hash(&parse("bea@posteo.net"));
    directory.sql().execute("INSERT INTO opt_out VALUES (?, FALSE, 0)", [hash]).unwrap();
    directory.refresh();
    assert_eq!(directory.find("bea+news@posteo.net"), None);
    assert_eq!(directory.find("bob@posteo.net").as_deref(), Some("bob"));
}

#[test]
fn opt_out_and_its_withdrawal_apply_without_a_refresh() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "ada", 1.0);
    assert_eq!(directory.find("ada@posteo.net").as_deref(), Some("ada"));
    let ada = [parse("ada@posteo.net")];
    directory.people.opt_out(&ada, START).unwrap();
    assert_eq!(directory.find("ada@posteo.net"), None);
    assert!(directory.people.has_opted_out(&ada[0]).unwrap());
    directory.people.withdraw(&ada, START).unwrap();
    assert!(!directory.people.has_opted_out(&ada[0]).unwrap());
}

#[test]
fn lookup_during_refresh_returns_old_or_new_profile() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "p-0", 1.0);
    directory.import("gone@posteo.net", "gone", 1.0);
    directory.opt_out("gone@posteo.net");
    let directory = &directory;
    thread::scope(|scope| {
        let import = |n| directory.import("ada@posteo.net", &format!("p-{n}"), 1.0);
        let imports = Arc::new(scope.spawn(move || (1..50).for_each(import)));
        let lookups = move || {
            let (mut last, mut count) = (0, 0_u64);
            while !imports.is_finished() || count == 0 {
                // On a busy machine, a refresh takes longer than lookups wait for it.
                let find = |email| match directory.people.get(&parse(email)) {
                    Err(SqliteError::OptOuts) if !imports.is_finished() => None,
                    found => Some(found.unwrap()),
                };
                let (Some(found), Some(gone)) = (find("ada@posteo.net"), find("gone@posteo.net")) else {
                    continue;
                };
                let found = found.expect("she is always there");
                let profile: u32 = found.name().strip_prefix("p-").unwrap().parse().unwrap();
                // The connection of another thread can be one refresh behind.
                assert!(profile + 1 >= last, "{profile} after {last}");
                assert_eq!(gone, None);
                (last, count) = (profile, count + 1);
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(lookups.clone())));
    });
    assert_eq!(directory.find("ada@posteo.net").as_deref(), Some("p-49"));
}

#[test]
fn lookups_fail_while_opt_outs_are_unreadable() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "ada", 1.0);
    directory.sql().execute_batch("DROP TABLE opt_out").unwrap();
    directory.refresh();
    assert!(directory.people.has_opted_out(&parse("ada@posteo.net")).is_err());
    assert!(directory.people.get(&parse("ada@posteo.net")).is_err());
}
