//! The accounts of a data directory that are moved to another store.

use enrich_store::accounts::{Accounts, Origin};

use crate::error::SqliteError;
use crate::files::accounts;
use crate::files::database::{self, Schema};
use crate::files::dir::{DataDir, ServeLock};
use crate::files::moved::MoveMarker;

/// All accounts of a directory that is no longer served or changed.
#[derive(Debug)]
pub struct Export {
    accounts: Accounts,
    mark: MoveMarker,
    is_new: bool,
    dir: DataDir,
    _lock: ServeLock,
}

impl Export {
    /// Marks the accounts of `dir` as moved to `target`, a human-readable name. From then on, neither a
    /// server nor an operator can change them or the opt-outs.
    ///
    /// `new_id` is random and identifies the accounts in the other store. Accounts that are already marked
    /// keep their id.
    ///
    /// Errors: [`SqliteError::Served`]; [`SqliteError::PeopleKey`] and [`SqliteError::ForeignPeopleKey`];
    /// [`SqliteError::Moved`] or [`SqliteError::Moving`] if the target of the mark is a different one.
    pub fn begin(dir: &DataDir, target: &str, new_id: [u8; 16]) -> Result<Self, SqliteError> {
        dir.check_people_not_lost()?;
        if dir.has_people() {
            dir.check_key(true)?;
        }
        let lock = dir.lock()?;
        let mark = dir.moved()?;
        if let Some(mark) = mark.as_ref().filter(|mark| mark.target != target) {
            return Err(mark.to_error(dir));
        }
        let mut db = database::create(&dir.accounts(), Schema::Accounts)?;
        database::wait_for_writers(&mut db)?;
        let is_new = mark.is_none();
        let mark = match mark {
            Some(mark) => mark,
            None => {
                let mark = MoveMarker { id: new_id, target: target.to_owned(), is_complete: false };
                dir.mark_moved(&mark)?;
                mark
            }
        };
        // Waits for a transaction that an operator has begun. Later ones see the mark.
        database::begin(&mut db)?.commit()?;
        if dir.has_people() {
            let mut people = database::create(&dir.people(), Schema::People)?;
            database::wait_for_writers(&mut people)?;
            database::begin(&mut people)?.commit()?;
        }
        Ok(Self { accounts: accounts(dir)?, mark, is_new, dir: dir.clone(), _lock: lock })
    }

    /// Returns whether another export has marked the accounts before.
    pub fn was_begun(&self) -> bool {
        !self.is_new
    }

    /// Removes the mark, unless it is complete. Call it only if nothing was written to the other store.
    pub fn cancel(self) -> Result<(), SqliteError> {
        if self.mark.is_complete { Ok(()) } else { self.dir.unmark_moved() }
    }

    /// Marks the accounts as moved completely. Call it when the other store has them.
    pub fn finish(self) -> Result<(), SqliteError> {
        self.dir.mark_moved(&MoveMarker { is_complete: true, ..self.mark })
    }

    /// Returns what identifies the accounts in the other store.
    pub fn origin(&self) -> Origin {
        Origin { id: self.mark.id, is_copied: self.mark.is_complete }
    }

    /// Returns the accounts, which can only be read.
    pub fn accounts(&mut self) -> &mut Accounts {
        &mut self.accounts
    }
}
