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
    was_begun: bool,
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
        let was_begun = mark.is_some();
        let mark = match mark {
            Some(mark) => mark,
            None => {
                let mark = MoveMarker { id: new_id, target: target.to_owned(), is_complete: false };
                dir.mark_moved(&mark)?;
                mark
            }
        };
        match open_after_writers(dir) {
            Ok(accounts) => Ok(Self { accounts, mark, was_begun, dir: dir.clone(), _lock: lock }),
            Err(error) if was_begun => Err(error),
            Err(error) => {
                dir.unmark_moved()?;
                Err(error)
            }
        }
    }

    /// Returns whether another export has marked the accounts before.
    pub fn was_begun(&self) -> bool {
        self.was_begun
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

/// Waits for the transactions that operators have begun, and opens the accounts. Later transactions see the mark.
fn open_after_writers(dir: &DataDir) -> Result<Accounts, SqliteError> {
    let people = dir.has_people().then(|| (dir.people(), Schema::People));
    for (path, schema) in [(dir.accounts(), Schema::Accounts)].into_iter().chain(people) {
        let mut db = database::create(&path, schema)?;
        database::wait_for_writers(&mut db)?;
        database::begin(&mut db)?.commit()?;
    }
    accounts(dir)
}
