//! The mark of a directory whose accounts were moved to another store, or are being moved.

use std::fs;
use std::path::PathBuf;

use super::dir::{DataDir, write_private};
use crate::error::SqliteError;

/// The content of `accounts.moved`: the store that received the accounts, and their id there.
pub(crate) struct MoveMarker {
    pub(crate) id: [u8; 16],
    pub(crate) target: String,
}

impl MoveMarker {
    fn parse(text: &str) -> Option<Self> {
        let (id, target) = text.trim_end().split_once('\n')?;
        let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
        Some(Self { id, target: target.to_owned() })
    }

    pub(crate) fn to_error(&self, dir: &DataDir) -> SqliteError {
        SqliteError::Moved {
            dir: dir.path().to_owned(),
            marker: marker_path(dir),
            target: self.target.clone(),
        }
    }
}

impl DataDir {
    /// Checks that the accounts were not moved.
    ///
    /// Errors: [`SqliteError::Moved`] if they were moved to another store, or the move is in progress.
    pub(crate) fn check_not_moved(&self) -> Result<(), SqliteError> {
        self.moved()?.map_or(Ok(()), |mark| Err(mark.to_error(self)))
    }

    pub(crate) fn moved(&self) -> Result<Option<MoveMarker>, SqliteError> {
        let path = marker_path(self);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let damaged = || SqliteError::file(&path)(std::io::Error::other("it is damaged"));
                MoveMarker::parse(&text).map(Some).ok_or_else(damaged)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SqliteError::file(path)(error)),
        }
    }

    /// Writes the mark atomically.
    pub(crate) fn mark_moved(&self, target: &str, id: [u8; 16]) -> Result<(), SqliteError> {
        let (path, partial) = (marker_path(self), self.path().join("accounts.moved.partial"));
        let text = format!("{:032x}\n{target}\n", u128::from_be_bytes(id));
        let _ = fs::remove_file(&partial); // left by a process that was killed here
        let written = write_private(&partial, text.as_bytes()).and_then(|()| fs::rename(&partial, &path));
        let synced = written.and_then(|()| fs::File::open(self.path())?.sync_all());
        synced.map_err(SqliteError::file(path))
    }

    /// Removes the mark.
    pub(crate) fn unmark_moved(&self) -> Result<(), SqliteError> {
        let path = marker_path(self);
        fs::remove_file(&path).map_err(SqliteError::file(path))
    }
}

fn marker_path(dir: &DataDir) -> PathBuf {
    dir.path().join("accounts.moved")
}
