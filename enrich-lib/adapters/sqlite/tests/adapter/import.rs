//! Imports that fail.

use std::fs;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{Import, SqliteError};

use crate::people::{Directory, parse};

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
