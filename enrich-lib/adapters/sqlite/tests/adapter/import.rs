//! Imports that fail.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{Import, ImportLimits, SqliteError};

use crate::people::{Directory, find, open, parse};

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

#[test]
fn log_stays_small_while_lookups_of_two_nodes_overlap() {
    let directory = Directory::new();
    let limits = ImportLimits {
        first_chunk_rows: 1_000,
        chunk_rows_max: 1_000,
        chunk_name_bytes_max: 1 << 20,
        batch_rows: 100,
        log_bytes_max: 1 << 20,
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let people = open(&directory.files);
                while !is_over.load(Ordering::Relaxed) {
                    find(&people, "ada@posteo.net");
                    thread::park_timeout(Duration::from_millis(5));
                    people.refresh().unwrap();
                }
            });
        }
        let import = scope.spawn(|| {
            let mut import = directory.people.start_import(limits, None).unwrap();
            for n in 0..20_000 {
                let profile = ProfileUrl::from_name(&format!("ada-{n}")).unwrap();
                import.add(&parse(&format!("ada{n}@posteo.net")), &profile, 0.9).unwrap();
            }
            import.finish().unwrap();
        });
        let imported = import.join();
        is_over.store(true, Ordering::Relaxed);
        imported.unwrap();
    });
    let log = fs::metadata(directory.files.path("people.db-wal")).unwrap().len();
    assert!(log < 4 << 20, "{log} bytes");
}
