//! Finding people: every spelling of an email finds the same person; untrusted and opted-out people are not found.

use std::fs;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{People, Stats};

use crate::world::{Files, START, message};

/// A directory with one handle on disk and one in memory. Both must return the same results.
pub(crate) struct Town {
    pub(crate) people: People,
    pub(crate) in_memory: People,
    pub(crate) files: Files,
}

impl Town {
    pub(crate) fn new() -> Self {
        let files = Files::new();
        Self::over(files)
    }

    pub(crate) fn over(files: Files) -> Self {
        Self { people: open(&files), in_memory: open(&files).in_memory().unwrap(), files }
    }

    /// Makes all changes visible to both handles.
    pub(crate) fn refresh(&self) {
        self.people.refresh().unwrap();
        self.in_memory.refresh().unwrap();
    }

    /// Imports one row.
    pub(crate) fn import(&self, email: &str, profile: &str, confidence: f64) {
        let mut import = self.people.import().unwrap();
        import.add(&parse(email), &ProfileUrl::from_name(profile).unwrap(), confidence).unwrap();
        import.finish().unwrap();
        self.refresh();
    }

    pub(crate) fn suppress(&self, email: &str) {
        self.people.suppress(&parse(email), START).unwrap();
        self.refresh();
    }

    pub(crate) fn find(&self, email: &str) -> Option<String> {
        let found = find(&self.people, email);
        assert_eq!(find(&self.in_memory, email), found, "in memory as on the disk");
        found
    }

    pub(crate) fn is_suppressed(&self, email: &str) -> bool {
        let is_suppressed = self.people.is_suppressed(&parse(email)).unwrap();
        assert_eq!(
            self.in_memory.is_suppressed(&parse(email)).unwrap(),
            is_suppressed,
            "in memory as on the disk"
        );
        is_suppressed
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
fn an_imported_person_is_found_and_a_stranger_is_not() {
    let town = Town::new();
    town.import("ada@posteo.net", "ada", 0.9);
    assert_eq!(town.find("ada@posteo.net").as_deref(), Some("ada"));
    assert_eq!(town.find("bob@posteo.net"), None);
}

#[test]
fn all_spellings_of_a_mailbox_find_one_person() {
    let town = Town::new();
    town.import("Ada.Marlowe+shop@GMail.com", "ada", 0.9);
    for same in ["adamarlowe@gmail.com", "a.d.a.marlowe@googlemail.com", "ADAMARLOWE+x@gmail.com"] {
        assert_eq!(town.find(same).as_deref(), Some("ada"), "{same}");
    }
    for other in ["adamarlowe@posteo.net", "ada-marlowe@gmail.com"] {
        assert_eq!(town.find(other), None, "{other}");
    }
}

#[test]
fn a_match_below_the_least_confidence_is_not_found() {
    let town = Town::new();
    town.import("sure@posteo.net", "sure", 1.0);
    town.import("just@posteo.net", "just", People::CONFIDENCE_MIN);
    town.import("unsure@posteo.net", "unsure", People::CONFIDENCE_MIN - 0.001);
    assert_eq!(town.find("sure@posteo.net").as_deref(), Some("sure"));
    assert_eq!(town.find("just@posteo.net").as_deref(), Some("just"));
    assert_eq!(town.find("unsure@posteo.net"), None);
    assert_eq!(town.people.stats().unwrap(), Stats { people: 3, untrusted: 1, suppressed: 0 });
    // The reader chooses the minimum confidence; the record is stored anyway.
    let trusting = || People::open(&town.files.dir, 0.1, [0; 16]).unwrap();
    for trusting in [trusting(), trusting().in_memory().unwrap()] {
        assert_eq!(find(&trusting, "unsure@posteo.net").as_deref(), Some("unsure"));
    }
}

#[test]
fn a_person_who_opted_out_looks_like_a_stranger() {
    let town = Town::new();
    town.import("Ada.Marlowe@gmail.com", "ada", 0.9);
    assert!(town.find("adamarlowe@gmail.com").is_some());
    town.suppress("ada.marlowe+out@gmail.com");
    assert_eq!(town.find("adamarlowe@gmail.com"), town.find("stranger@gmail.com"));
    assert_eq!(town.people.stats().unwrap(), Stats { people: 0, untrusted: 0, suppressed: 1 });
}

#[test]
fn a_person_who_opted_out_stays_away_after_an_import() {
    let town = Town::new();
    town.suppress("ada@posteo.net");
    town.suppress("ada@posteo.net");
    town.import("ada@posteo.net", "ada", 1.0);
    assert_eq!(town.find("ada@posteo.net"), None);
    assert_eq!(town.people.stats().unwrap(), Stats { people: 0, untrusted: 0, suppressed: 1 });
}

#[test]
fn an_opt_out_is_told_in_all_spellings_to_who_asks_others() {
    let town = Town::new();
    town.import("bob@posteo.net", "bob", 0.9);
    assert!(!town.is_suppressed("ada.marlowe@gmail.com"));
    town.suppress("Ada.Marlowe+out@googlemail.com");
    assert!(town.is_suppressed("ada.marlowe@gmail.com") && town.is_suppressed("AdaMarlowe@gmail.com"));
    assert!(!town.is_suppressed("bob@posteo.net"), "a person who is in the directory did not opt out");
}

#[test]
fn opt_outs_that_can_t_be_read_are_an_error_and_nobody_counts_as_willing() {
    let town = Town::new();
    let db = rusqlite::Connection::open(town.files.path("people.db")).unwrap();
    db.execute_batch("DROP TABLE suppressed").unwrap();
    town.people.refresh().unwrap();
    assert!(town.people.is_suppressed(&parse("ada@posteo.net")).is_err());
    assert!(town.in_memory.refresh().is_err());
    assert!(town.in_memory.is_suppressed(&parse("ada@posteo.net")).is_err());
    assert!(town.in_memory.get(&parse("ada@posteo.net")).is_err());
}

#[test]
fn an_opt_out_survives_a_reopen() {
    let town = Town::new();
    town.import("ada@posteo.net", "ada", 0.9);
    town.import("bob@posteo.net", "bob", 0.9);
    town.suppress("ada@posteo.net");
    let Town { people, in_memory, files } = town;
    drop((people, in_memory));
    let town = Town::over(files);
    town.import("ada@posteo.net", "ada", 0.9);
    assert_eq!((town.find("ada@posteo.net"), town.find("bob@posteo.net").as_deref()), (None, Some("bob")));
}

#[test]
fn a_lookup_sees_what_another_handle_did_after_a_refresh() {
    let town = Town::new();
    let other = open(&town.files);
    assert_eq!(find(&other, "ada@posteo.net"), None);
    town.import("ada@posteo.net", "ada", 0.9);
    other.refresh().unwrap();
    assert_eq!(find(&other, "ada@posteo.net").as_deref(), Some("ada"));
    town.suppress("ada@posteo.net");
    other.refresh().unwrap();
    assert_eq!(find(&other, "ada@posteo.net"), None);
}

#[test]
fn the_secret_of_a_directory_is_made_once() {
    let town = Town::new();
    town.import("ada@posteo.net", "ada", 0.9);
    let reopened = People::open(&town.files.dir, 0.8, [8; 16]).unwrap();
    assert_eq!(find(&reopened, "ada@posteo.net").as_deref(), Some("ada"));
    assert_eq!(fs::read(town.files.path("people.key")).unwrap(), [7; 16]);
}

#[test]
fn a_directory_without_its_secret_gets_no_new_one() {
    for damage in [None, Some(vec![7; 15]), Some(vec![])] {
        let Town { people, in_memory, files } = Town::new();
        drop((people, in_memory));
        let path = files.path("people.key");
        match &damage {
            None => fs::remove_file(&path).unwrap(),
            Some(bytes) => fs::write(&path, bytes).unwrap(),
        }
        let refused = message(People::open(&files.dir, 0.8, [8; 16]));
        let told = "is missing or damaged: restore it from a backup, as the people in the directory can't be found \
                    without it";
        assert_eq!(refused, format!("{} {told}", path.display()), "{damage:?}");
        assert_eq!(fs::read(&path).ok(), damage, "and what is left of it is left alone");
    }
}
