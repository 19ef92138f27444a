//! Imports are idempotent, and the last row of a person wins.

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::SqliteError;
use enrich_store::{Imported, RemovalLimit};

use crate::people::{Directory, open, parse};

fn counts(changed: u64, unchanged: u64, removed: u64) -> Imported {
    Imported { changed, unchanged, removed, refused: None }
}

#[test]
fn import_is_idempotent() {
    let rows = [("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.5)];
    let directory = Directory::new();
    assert_eq!(import(&directory, &rows), counts(2, 0, 0));
    assert_eq!(import(&directory, &rows), counts(0, 2, 0));
    assert_eq!(directory.people.stats().unwrap().people, 2);
}

#[test]
fn changed_row_replaces_previous_row() {
    let directory = Directory::new();
    import(&directory, &[("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.5)]);
    let better = [("ada@posteo.net", "ada-m", 0.9), ("bob@posteo.net", "bob", 0.9)];
    assert_eq!(import(&directory, &better), counts(2, 0, 0));
    assert_eq!(directory.find("ada@posteo.net").as_deref(), Some("ada-m"));
    assert_eq!(directory.find("bob@posteo.net").as_deref(), Some("bob"), "it is trusted now");
}

#[test]
fn last_row_of_person_wins() {
    let directory = Directory::new();
    import(
        &directory,
        &[
            ("adamarlowe@gmail.com", "first", 0.9),
            ("bob@posteo.net", "bob", 0.9),
            ("ada.marlowe@gmail.com", "second", 0.95),
            ("Ada.Marlowe+x@googlemail.com", "last", 0.85),
        ],
    );
    assert_eq!(directory.find("adamarlowe@gmail.com").as_deref(), Some("last"));
    assert_eq!(directory.people.stats().unwrap().people, 2);
}

/// More rows than a chunk has, so that each person has several rows in one chunk and in two.
#[test]
fn last_of_many_rows_of_each_person_wins() {
    const ROWS: usize = 130_000;
    const PEOPLE: usize = 20_000;
    let directory = Directory::new();
    let email = |person: usize| parse(&format!("person{person}@posteo.net"));
    let emails: Vec<_> = (0..PEOPLE).map(email).collect();
    let mut import = directory.people.import().unwrap();
    let mut last = vec![0; PEOPLE];
    for row in 0..ROWS {
        let person = row * 7_919 % PEOPLE;
        import.add(&emails[person], &ProfileUrl::from_name(&format!("row-{row}")).unwrap(), 0.9).unwrap();
        last[person] = row;
    }
    import.finish().unwrap();
    directory.refresh();
    for (email, row) in emails.iter().zip(last) {
        let expected = ProfileUrl::from_name(&format!("row-{row}")).unwrap();
        assert_eq!(directory.people.get(email).unwrap(), Some(expected));
    }
}

#[test]
fn last_row_wins_even_below_confidence_min() {
    let directory = Directory::new();
    import(&directory, &[("ada@posteo.net", "ada", 0.9), ("ada@posteo.net", "ada", 0.1)]);
    assert_eq!(directory.find("ada@posteo.net"), None);
}

#[test]
fn counts_rows_of_opted_out_people_as_unchanged() {
    let directory = Directory::new();
    directory.opt_out("ada@posteo.net");
    let done = import(&directory, &[("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.9)]);
    assert_eq!(done, counts(1, 1, 0));
}

#[test]
fn dropped_import_writes_no_partial_batch() {
    let directory = Directory::new();
    let mut unfinished = directory.people.import().unwrap();
    unfinished.add(&parse("ada@posteo.net"), &ProfileUrl::from_name("ada").unwrap(), 0.9).unwrap();
    drop(unfinished);
    assert_eq!(directory.people.stats().unwrap().people, 0);
}

#[test]
fn imports_of_a_directory_exclude_each_other() {
    let directory = Directory::new();
    let other = open(&directory.files);
    for is_finished in [false, true] {
        let first = directory.people.import().unwrap();
        for second in [other.import().err(), other.replace(RemovalLimit::default()).err()] {
            assert!(
                matches!(second, Some(SqliteError::Importing { since, .. }) if since.unix_ms() > 1_700_000_000_000)
            );
        }
        match is_finished {
            true => assert!(first.finish().is_ok()),
            false => drop(first),
        }
        other.import().unwrap().finish().unwrap();
    }
}

#[test]
fn replacement_removes_others_only_when_it_is_finished() {
    let directory = Directory::new();
    import(&directory, &[("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.9)]);
    let (bob, name) = (parse("bob@posteo.net"), ProfileUrl::from_name("bobby").unwrap());
    for (is_finished, people) in [(false, 2), (true, 1)] {
        let mut import = directory.people.replace(RemovalLimit::Percent(50)).unwrap();
        import.add(&bob, &name, 0.9).unwrap();
        let (changed, unchanged, removed) = if is_finished { (0, 1, 1) } else { (1, 0, 0) };
        let done = if is_finished { import.finish() } else { import.stop() };
        assert_eq!(done.unwrap(), counts(changed, unchanged, removed));
        assert_eq!(directory.people.stats().unwrap().people, people);
    }
    directory.refresh();
    assert_eq!(directory.find("bob@posteo.net").as_deref(), Some("bobby"));
    assert_eq!(directory.find("ada@posteo.net"), None);
}

#[test]
fn rejects_confidence_out_of_range() {
    let directory = Directory::new();
    for confidence in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let mut import = directory.people.import().unwrap();
        import.add(&parse("ada@posteo.net"), &ProfileUrl::from_name("ada").unwrap(), confidence).unwrap();
        assert!(import.finish().is_err(), "{confidence}");
    }
    assert_eq!(directory.people.stats().unwrap().people, 0);
}

#[test]
fn returns_profile_as_imported() {
    let directory = Directory::new();
    import(&directory, &[("zoe@posteo.net", "zo%C3%AB-5", 0.9)]);
    assert_eq!(directory.find("zoe@posteo.net").as_deref(), Some("zo%C3%AB-5"));
}

fn import(directory: &Directory, rows: &[(&str, &str, f64)]) -> Imported {
    let mut import = directory.people.import().unwrap();
    for (email, profile, confidence) in rows {
        import.add(&parse(email), &ProfileUrl::from_name(profile).unwrap(), *confidence).unwrap();
    }
    let done = import.finish().unwrap();
    directory.refresh();
    done
}
