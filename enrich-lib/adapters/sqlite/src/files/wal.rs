//! The size of the write-ahead log (<https://sqlite.org/walformat.html>).
//!
//! No function here opens a file: closing any descriptor of a file releases all POSIX locks that the process
//! has on it, those of SQLite included.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::error::SqliteError;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// Returns whether the database file has a write-ahead log with content.
pub(crate) fn has_content(database: &Path) -> bool {
    bytes(database).is_ok_and(|bytes| bytes > 0)
}

/// Returns whether the log has more than a header, which a power cut may leave of a file that is being created.
pub(crate) fn has_frames(database: &Path) -> bool {
    bytes(database).is_ok_and(|bytes| bytes > HEADER_BYTES)
}

/// Returns whether the log is too short for a frame after the last commit, so that recovery after a crash
/// finds no other commit.
///
/// Returns `false` after a restart of the log, which keeps its length.
pub(crate) fn ends_at_last_commit(db: &Connection) -> Result<bool, SqliteError> {
    let Some(database) = db.path().map(Path::new) else { return Ok(false) };
    // Before the frames: if another process commits in between, it overwrites the frame in question.
    let bytes = bytes(database).map_err(SqliteError::file(database))?;
    let frames: i64 = db.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1))?;
    // -1 without a log.
    let Ok(frames) = u64::try_from(frames) else { return Ok(false) };
    let page_bytes: u64 = db.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(bytes < HEADER_BYTES + (frames + 1) * (FRAME_HEADER_BYTES + page_bytes))
}

fn bytes(database: &Path) -> std::io::Result<u64> {
    let mut path = OsString::from(database);
    path.push("-wal");
    Ok(fs::metadata(path)?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_frame_after_the_last_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (1);").unwrap();
        assert!(ends_at_last_commit(&db).unwrap());

        let log = fs::OpenOptions::new().append(true).open(dir.path().join("test.db-wal")).unwrap();
        let end = log.metadata().unwrap().len();
        log.set_len(end + FRAME_HEADER_BYTES + 4_095).unwrap();
        assert!(ends_at_last_commit(&db).unwrap(), "the frame is incomplete");
        log.set_len(end + FRAME_HEADER_BYTES + 4_096).unwrap();
        assert!(!ends_at_last_commit(&db).unwrap());

        db.execute("INSERT INTO t VALUES (2)", []).unwrap();
        assert!(ends_at_last_commit(&db).unwrap(), "the commit overwrote the frame");
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        db.execute("INSERT INTO t VALUES (3)", []).unwrap();
        assert!(!ends_at_last_commit(&db).unwrap(), "the log has old frames");
    }
}
