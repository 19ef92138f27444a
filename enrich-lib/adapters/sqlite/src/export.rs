//! Exports the accounts of a data directory to another store.
//!
//! Beginning an export marks the directory. From then on, neither a server nor an operator can change its accounts, so
//! an interrupted export can resume where it stopped.

use std::fs;
use std::path::PathBuf;

use enrich_lib::key::{KeyDigest, KeyId};
use enrich_lib::model::LookupId;
use enrich_store::records::{
    Contents, CopiedConsole, CopiedGrant, CopiedKey, CopiedSpend, CopiedUser, CopiedWorkspace, RemovedSpends,
};
use enrich_store::usage::BILLED;
use rusqlite::{Connection, Params, Row, params};

use crate::column::{parsed, time};
use crate::database::{self, Schema};
use crate::dir::{DataDir, ServeLock, write_private};
use crate::error::SqliteError;
use crate::{grants, keys, usage, user_rows, workspaces};

/// A snapshot of all accounts of a directory that is no longer served.
#[derive(Debug)]
pub struct Export {
    db: Connection,
    id: [u8; 16],
    _lock: ServeLock,
}

impl Export {
    /// Marks the accounts of `dir` as moved to `target`, a human-readable name.
    ///
    /// `new_id` is random and identifies the accounts in the other store. Accounts that are already marked keep their
    /// id.
    ///
    /// Errors: [`SqliteError::Served`]; [`SqliteError::Moved`] if the accounts were moved to a different target.
    pub fn begin(dir: &DataDir, target: &str, new_id: [u8; 16]) -> Result<Self, SqliteError> {
        let lock = dir.lock()?;
        let mut db = database::create(&dir.accounts(), Schema::Accounts)?;
        database::retry_often(&mut db)?;
        let id = match dir.moved()? {
            Some(mark) if mark.target == target => mark.id,
            Some(mark) => return Err(mark.into_error(dir)),
            None => {
                dir.mark_moved(target, new_id)?;
                new_id
            }
        };
        // Waits for a running write transaction. Later writers see the mark.
        database::begin(&mut db)?.commit()?;
        db.execute_batch("BEGIN")?;
        Ok(Self { db, id, _lock: lock })
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
    pub fn workspaces(&self) -> Result<Vec<CopiedWorkspace>, SqliteError> {
        let mut select = self.db.prepare(&format!(
            "WITH k AS (SELECT workspace, count(*) AS n FROM api_key GROUP BY workspace),
                  g AS (SELECT workspace, count(*) AS n, sum(credits) AS credits FROM credit_grant GROUP BY workspace),
                  s AS (SELECT workspace, sum(n) AS n, sum(credits) AS credits
                        FROM (SELECT workspace, 1 AS n, credits FROM credit_spend
                              UNION ALL SELECT workspace, 0, credits FROM removed_spends) GROUP BY workspace)
             SELECT w.rowid, w.id, w.created_at, coalesce(k.n, 0), coalesce(g.n, 0), coalesce(g.credits, 0), coalesce(s.n, 0),
                    coalesce(s.credits, 0), {}
             FROM workspace w LEFT JOIN k ON k.workspace = w.rowid LEFT JOIN g ON g.workspace = w.rowid
             LEFT JOIN s ON s.workspace = w.rowid ORDER BY w.id",
            workspaces::PROPERTIES
        ))?;
        let rows = select.query_and_then([], |row| {
            Ok(CopiedWorkspace {
                rowid: row.get(0)?,
                id: parsed(row, 1, |id: String| id.parse())?,
                properties: workspaces::properties(row, 8)?,
                created_at: time(row.get(2)?),
                contents: Contents {
                    keys: row.get(3)?,
                    grants: row.get(4)?,
                    granted: row.get(5)?,
                    spends: row.get(6)?,
                    spent: row.get(7)?,
                },
            })
        })?;
        rows.collect()
    }

    /// Returns all keys, oldest first.
    pub fn keys(&self) -> Result<Vec<CopiedKey>, SqliteError> {
        let select = format!("SELECT workspace, digest, {} FROM api_key ORDER BY rowid", keys::COLUMNS);
        let mut select = self.db.prepare(&select)?;
        let rows = select.query_map([], |row| {
            let digest = KeyDigest::from_bytes(row.get(1)?);
            Ok(CopiedKey { workspace: row.get(0)?, digest, row: keys::key_row(row, 2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns up to `limit` grants, adjustments and refunds with a rowid greater than `after`.
    pub fn grants(&self, after: i64, limit: u32) -> Result<Vec<CopiedGrant>, SqliteError> {
        let columns = grants::COLUMNS;
        let select = format!(
            "SELECT rowid, workspace, {columns} FROM credit_grant WHERE rowid > ? ORDER BY rowid LIMIT ?"
        );
        self.rows(&select, params![after, limit], |row| {
            Ok(CopiedGrant { rowid: row.get(0)?, workspace: row.get(1)?, row: grants::row(row, 2)? })
        })
    }

    /// Returns up to `limit` spends with a lookup id greater than `after`.
    pub fn spends(&self, after: Option<LookupId>, limit: u32) -> Result<Vec<CopiedSpend>, SqliteError> {
        let select = "SELECT lookup_id, workspace, key, credits, at FROM credit_spend WHERE lookup_id > ? ORDER BY lookup_id LIMIT ?";
        self.by_lookup(select, after, limit)
    }

    /// Returns the users of the web application, the usage that does not follow from the spends, and the audit log.
    pub fn console(&self) -> Result<CopiedConsole, SqliteError> {
        let users = user_rows::users(&self.db, "true", [])?;
        let users = users.into_iter().map(|user| {
            let select = "SELECT workspace FROM member WHERE rowid = ?";
            let workspace = self.db.query_row(select, [user.id.0], |row| row.get(0))?;
            let select = "SELECT digest FROM member_recovery_code WHERE member = ?";
            let recovery_codes = self.rows(select, [user.id.0], |row| row.get(0))?;
            Ok(CopiedUser { workspace, user, recovery_codes })
        });
        Ok(CopiedConsole {
            users: users.collect::<Result<_, SqliteError>>()?,
            usage: self.rows(
                "WITH spends AS (
                     SELECT workspace, at / 86400000 AS day, key, count(*) AS lookups, sum(credits) AS credits FROM credit_spend
                     WHERE lookup_id <= (SELECT lookup_id FROM usage_until) AND EXISTS (SELECT 1 FROM removed_spends)
                     GROUP BY 1, 2, 3
                 )
                 SELECT workspace, day, key, outcome, lookups, credits FROM usage_day WHERE outcome <> ?1
                 UNION ALL
                 SELECT u.workspace, u.day, u.key, u.outcome, u.lookups - coalesce(s.lookups, 0), u.credits - coalesce(s.credits, 0)
                 FROM usage_day u LEFT JOIN spends s ON s.workspace = u.workspace AND s.day = u.day AND s.key = u.key
                 WHERE u.outcome = ?1 AND u.lookups > coalesce(s.lookups, 0) AND EXISTS (SELECT 1 FROM removed_spends)
                 ORDER BY 1, 2, 3, 4",
                [BILLED],
                |row| Ok((row.get(0)?, usage::usage_row(row, 1)?)),
            )?,
            removed: self.rows(
                "SELECT workspace, key, lookups, credits FROM removed_spends ORDER BY workspace, key",
                [],
                |row| {
                    let (key, lookups, credits) = (KeyId::from_number(row.get(1)?), row.get(2)?, row.get(3)?);
                    Ok((row.get(0)?, RemovedSpends { key, lookups, credits }))
                },
            )?,
            audit_log: self.rows(
                "SELECT workspace, rowid, at, actor, action, subject, address FROM audit_event ORDER BY rowid",
                [],
                |row| Ok((row.get(0)?, user_rows::audit_event(row, 1)?)),
            )?,
        })
    }

    fn rows<T>(
        &self,
        select: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, SqliteError> {
        let mut select = self.db.prepare_cached(select)?;
        let rows = select.query_map(values, read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn by_lookup(
        &self,
        select: &str,
        after: Option<LookupId>,
        limit: u32,
    ) -> Result<Vec<CopiedSpend>, SqliteError> {
        let mut select = self.db.prepare_cached(select)?;
        let after: &[u8] = after.as_ref().map_or(&[], |id| id.as_bytes());
        let rows = select.query_map(params![after, limit], |row: &Row<'_>| {
            Ok(CopiedSpend {
                lookup_id: LookupId::from_bytes(row.get(0)?),
                workspace: row.get(1)?,
                key: KeyId::from_number(row.get(2)?),
                credits: row.get(3)?,
                at: time(row.get(4)?),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
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
