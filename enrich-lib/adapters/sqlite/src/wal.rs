//! The write-ahead log, read from its file (<https://sqlite.org/walformat.html>).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Returns whether the database file has a write-ahead log with content.
pub(crate) fn has_content(database: &Path) -> bool {
    fs::metadata(with_suffix(database, "-wal")).is_ok_and(|meta| meta.len() > 0)
}

/// Returns whether no frame follows the last commit: recovery after a crash then finds no other one. The caller must be in a
/// write transaction that has written nothing, so that no other process writes.
pub(crate) fn ends_at_last_commit(database: &Path) -> io::Result<bool> {
    let index = Index::read(database)?;
    let mut log = File::open(with_suffix(database, "-wal"))?;
    let frame_bytes = FRAME_HEADER_BYTES + index.page_bytes;
    log.seek(SeekFrom::Start(HEADER_BYTES + u64::from(index.frames) * frame_bytes as u64))?;
    let mut frame = Vec::new();
    log.take(frame_bytes as u64).read_to_end(&mut frame)?;
    // A complete frame may be left from before the log was restarted. Such a frame has other salts.
    Ok(frame.len() < frame_bytes || frame[8..16] != index.salts)
}

/// The header of the index, in shared memory. Its numbers have the byte order of the machine.
struct Index {
    page_bytes: usize,
    /// The number of frames up to the last commit.
    frames: u32,
    salts: [u8; 8],
}

impl Index {
    fn read(database: &Path) -> io::Result<Self> {
        let mut header = [0; 48];
        File::open(with_suffix(database, "-shm"))?.read_exact(&mut header)?;
        let page_bytes = match u16::from_ne_bytes([header[14], header[15]]) {
            1 => 65_536,
            bytes => usize::from(bytes),
        };
        let [a, b, c, d] = [16, 17, 18, 19].map(|at| header[at]);
        let mut salts = [0; 8];
        salts.copy_from_slice(&header[32..40]);
        Ok(Self { page_bytes, frames: u32::from_ne_bytes([a, b, c, d]), salts })
    }
}

fn with_suffix(database: &Path, suffix: &str) -> OsString {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn finds_a_frame_after_the_last_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (1);").unwrap();
        assert!(ends_at_last_commit(&path).unwrap());

        // Repeats the last frame: its salts are current. Its checksum is not, but only recovery needs to know.
        let log = with_suffix(&path, "-wal");
        let mut bytes = std::fs::read(&log).unwrap();
        let last = bytes[bytes.len() - FRAME_HEADER_BYTES - 4_096..].to_vec();
        bytes.extend(&last);
        std::fs::write(&log, &bytes).unwrap();
        assert!(!ends_at_last_commit(&path).unwrap());
        bytes.truncate(bytes.len() - 1);
        std::fs::write(&log, &bytes).unwrap();
        assert!(ends_at_last_commit(&path).unwrap(), "the frame is incomplete");

        // A restarted log keeps old frames.
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        db.execute("INSERT INTO t VALUES (2)", []).unwrap();
        assert!(std::fs::metadata(&log).unwrap().len() as usize >= bytes.len() - last.len());
        assert!(ends_at_last_commit(&path).unwrap());
    }
}
