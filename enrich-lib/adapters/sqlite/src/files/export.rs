//! Exports the accounts of a data directory to another store.
//!
//! Beginning an export marks the directory. From then on, neither a server nor an operator can change its
//! accounts, so an interrupted export can resume where it stopped.

use std::fs;
use std::path::PathBuf;

use enrich_lib::model::LookupId;
use enrich_store::accounts::Accounts;
use enrich_store::records::{CopiedConsole, CopiedGrant, CopiedKey, CopiedSpend, CopiedWorkspace};

use super::blocking::complete;
use super::dir::{DataDir, ServeLock, write_private};
use super::engine::Engine;
use crate::error::SqliteError;

/// All accounts of a directory that is no longer served or changed.
#[derive(Debug)]
pub struct Export {
    accounts: Accounts,
    id: [u8; 16],
    _lock: ServeLock,
}

impl Export {
    /// Marks the accounts of `dir` as moved to `target`, a human-readable name.
    ///
    /// `new_id` is random and identifies the accounts in the other store. Accounts that are already marked
    /// keep their id.
    ///
    /// Errors: [`SqliteError::Served`]; [`SqliteError::Moved`] if the accounts were moved to a different
    /// target.
    pub fn begin(dir: &DataDir, target: &str, new_id: [u8; 16]) -> Result<Self, SqliteError> {
        let lock = dir.lock()?;
        let mut engine = Engine::open(dir)?;
        let id = match dir.moved()? {
            Some(mark) if mark.target == target => mark.id,
            Some(mark) => return Err(mark.into_error(dir)),
            None => {
                dir.mark_moved(target, new_id)?;
                new_id
            }
        };
        // Waits for a running write transaction. Later writers see the mark.
        engine.wait_for_writers()?;
        Ok(Self { accounts: Accounts::new(engine), id, _lock: lock })
    }

    /// Removes the mark. Call it only if nothing was written to the other store.
    pub fn cancel(self, dir: &DataDir) -> Result<(), SqliteError> {
        let path = marker_path(dir);
        fs::remove_file(&path).map_err(SqliteError::file(path))
    }

    /// Returns the id of the accounts in the other store.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Returns all workspaces, by name.
    pub fn workspaces(&mut self) -> Result<Vec<CopiedWorkspace>, SqliteError> {
        complete(self.accounts.copied_workspaces())
    }

    /// Returns all keys, oldest first.
    pub fn keys(&mut self) -> Result<Vec<CopiedKey>, SqliteError> {
        complete(self.accounts.copied_keys())
    }

    /// Returns up to `limit` grants, adjustments and refunds with a rowid greater than `after`.
    pub fn grants(&mut self, after: i64, limit: u32) -> Result<Vec<CopiedGrant>, SqliteError> {
        complete(self.accounts.copied_grants(after, limit))
    }

    /// Returns up to `limit` spends with a lookup id greater than `after`.
    pub fn spends(&mut self, after: Option<LookupId>, limit: u32) -> Result<Vec<CopiedSpend>, SqliteError> {
        complete(self.accounts.copied_spends(after, limit))
    }

    /// Returns the users of the web application, the usage that does not follow from the spends, and the
    /// audit log.
    pub fn console(&mut self) -> Result<CopiedConsole, SqliteError> {
        complete(self.accounts.copied_console())
    }
}

/// The content of `accounts.moved`: the store that received the accounts, and their id there.
pub(crate) struct MoveMarker {
    id: [u8; 16],
    target: String,
}

impl MoveMarker {
    fn parse(text: &str) -> Option<Self> {
        let (id, target) = text.trim_end().split_once('\n')?;
        let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
        Some(Self { id, target: target.to_owned() })
    }

    pub(crate) fn into_error(self, dir: &DataDir) -> SqliteError {
        SqliteError::Moved { dir: dir.path().to_owned(), marker: marker_path(dir), target: self.target }
    }
}

impl DataDir {
    /// Checks that the accounts were not moved.
    ///
    /// Errors: [`SqliteError::Moved`] if they were moved to another store, or the move is in progress.
    pub(crate) fn check_not_moved(&self) -> Result<(), SqliteError> {
        self.moved()?.map_or(Ok(()), |mark| Err(mark.into_error(self)))
    }

    fn moved(&self) -> Result<Option<MoveMarker>, SqliteError> {
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
    fn mark_moved(&self, target: &str, id: [u8; 16]) -> Result<(), SqliteError> {
        let (path, partial) = (marker_path(self), self.path().join("accounts.moved.partial"));
        let text = format!("{:032x}\n{target}\n", u128::from_be_bytes(id));
        let _ = fs::remove_file(&partial); // left by a process that was killed here
        let written = write_private(&partial, text.as_bytes()).and_then(|()| fs::rename(&partial, &path));
        let synced = written.and_then(|()| fs::File::open(self.path())?.sync_all());
        synced.map_err(SqliteError::file(path))
    }
}

fn marker_path(dir: &DataDir) -> PathBuf {
    dir.path().join("accounts.moved")
}
