//! Imports are idempotent, and the last row of a person wins.

use std::fs;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{Import, SqliteError};
use enrich_store::{Imported, RemovalLimit};

use crate::people::{Directory, parse};

fn counts(changed: u64, unchanged: u64, removed: u64) -> Imported {
    Imported { changed, unchanged, removed, refused: None }
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
fn fails_if_the_directory_was_replaced() {
    let directory = Directory::new();
    for end in [|import: Import<'_>| import.stop(), |import: Import<'_>| import.finish()] {
        let mut import = directory.people.import().unwrap();
        import.add(&parse("ada@posteo.net"), &ProfileUrl::from_name("ada").unwrap(), 0.9).unwrap();
        fs::remove_file(directory.files.path("import.lock")).unwrap();
        assert!(matches!(end(import), Err(SqliteError::Replaced(_))));
    }
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
