//! Imports that fail.

use std::fs;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{Import, SqliteError};

use crate::people::{Directory, parse};

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
