//! The mark of a directory whose accounts were moved to another store, or are being moved.

use std::fs;
use std::path::PathBuf;

use super::dir::DataDir;
use crate::error::SqliteError;

/// The content of `accounts.moved`: the store that receives the accounts, their id there, and whether it has
/// all of them.
#[derive(Debug)]
pub(crate) struct MoveMarker {
    pub(crate) id: [u8; 16],
    pub(crate) target: String,
    pub(crate) is_complete: bool,
}

/// The file of the mark.
pub(crate) const MARKER: &str = "accounts.moved";

/// The last line of a complete mark.
const COMPLETE: &str = "complete";

impl MoveMarker {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let id = u128::from_str_radix(lines.next()?, 16).ok()?.to_be_bytes();
        Some(Self { id, target: lines.next()?.to_owned(), is_complete: lines.next() == Some(COMPLETE) })
    }

    pub(crate) fn to_error(&self, dir: &DataDir) -> SqliteError {
        let (dir, target) = (dir.path().to_owned(), self.target.clone());
        if self.is_complete {
            SqliteError::Moved { dir, target }
        } else {
            SqliteError::Moving { dir, target }
        }
    }
}

impl DataDir {
    /// Checks that the accounts were not moved.
    ///
    /// Errors: [`SqliteError::Moved`] if they were moved to another store; [`SqliteError::Moving`] if the move is
    /// in progress.
    pub fn check_not_moved(&self) -> Result<(), SqliteError> {
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
    pub(crate) fn mark_moved(&self, mark: &MoveMarker) -> Result<(), SqliteError> {
        let MoveMarker { id, target, is_complete } = mark;
        let mut text = format!("{:032x}\n{target}\n", u128::from_be_bytes(*id));
        if *is_complete {
            text.push_str(COMPLETE);
        }
        self.replace(MARKER, &text)
    }

    /// Removes the mark.
    pub(crate) fn unmark_moved(&self) -> Result<(), SqliteError> {
        let path = marker_path(self);
        fs::remove_file(&path).map_err(SqliteError::file(path))
    }
}

fn marker_path(dir: &DataDir) -> PathBuf {
    dir.path().join(MARKER)
}
