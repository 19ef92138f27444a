//! The SQL statements that the fake supports, each recognized by the name in its first comment.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use pgwire::messages::data::DataRow;
use postgres_types::{ToSql, Type};

use super::database::Database;
use super::rows::{Held, Lookup, SettleRequest};
use super::values::{Arguments, SqlError, row};

/// The number of migrations that the fake reports as applied.
const MIGRATIONS: i32 = 1;

/// The `lock_timeout` of the functions of a node.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// A supported statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    FindKeys,
    Revision,
    ChangedKeys,
    Hold,
    /// Reads of which workspaces lookups hold credits.
    Holding,
    /// Reads which workspaces have credits in expired holds.
    Expired,
    Settle,
    /// Ends holds and reads spends.
    Fence,
    ReadSpends,
    Expire,
    ReturnCredits,
    CountSpends,
    EndReceipts,
    Balance,
    /// Stores or compares the fingerprint of the key of all hashes.
    PeopleKey,
    FindPeople,
    /// Updates the time of last use of keys. The fake ignores it.
    RecordUse,
    /// Adds free lookups to the usage.
    CountFree,
    /// Reads the number of applied migrations.
    Version,
    /// Checks that the server accepts writes.
    CheckWritable,
    /// Has no effect.
    NoOp,
}

const NAMES: [(&str, Statement); 20] = [
    ("/* enrich: find keys */", Statement::FindKeys),
    ("/* enrich: revision */", Statement::Revision),
    ("/* enrich: changed keys */", Statement::ChangedKeys),
    ("/* enrich: hold */", Statement::Hold),
    ("/* enrich: workspaces with holds */", Statement::Holding),
    ("/* enrich: workspaces with expired holds */", Statement::Expired),
    ("/* enrich: settle */", Statement::Settle),
    ("/* enrich: fence */", Statement::Fence),
    ("/* enrich: read spends */", Statement::ReadSpends),
    ("/* enrich: expire */", Statement::Expire),
    ("/* enrich: return credits */", Statement::ReturnCredits),
    ("/* enrich: count spends */", Statement::CountSpends),
    ("/* enrich: end receipts */", Statement::EndReceipts),
    ("/* enrich: balance */", Statement::Balance),
    ("/* enrich: people key */", Statement::PeopleKey),
    ("/* enrich: find people */", Statement::FindPeople),
    ("/* enrich: record use */", Statement::RecordUse),
    ("/* enrich: count free lookups */", Statement::CountFree),
    ("/* enrich: schema version */", Statement::Version),
    ("DO $$ BEGIN", Statement::CheckWritable),
];

impl Statement {
    pub(super) fn parse(sql: &str) -> Result<Self, SqlError> {
        if sql.is_empty() {
            return Ok(Self::NoOp);
        }
        let statement = NAMES.iter().find(|(name, _)| sql.starts_with(name)).map(|(_, statement)| *statement);
        statement.ok_or_else(|| {
            SqlError::new("0A000", &format!("the fake does not support this statement: {sql}"))
        })
    }

    /// Returns the types of the parameters. Statements of a batch begin with the same ones.
    pub(super) fn parameters(self) -> Vec<Type> {
        let batch: &[Type] = match self {
            Self::Hold | Self::Fence | Self::Settle => &[
                Type::TEXT_ARRAY,
                Type::BYTEA_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::BYTEA_ARRAY,
            ],
            _ => &[],
        };
        let others: &[Type] = match self {
            Self::FindKeys => &[Type::BYTEA_ARRAY, Type::INT8],
            Self::EndReceipts => &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
            Self::ReturnCredits => &[Type::INT8, Type::INT8, Type::TEXT_ARRAY],
            Self::Expired => &[Type::TEXT_ARRAY, Type::INT8],
            Self::ChangedKeys | Self::Expire | Self::CountSpends => &[Type::INT8, Type::INT8],
            Self::Hold => &[Type::INT8],
            Self::Holding => &[Type::TEXT_ARRAY],
            Self::Settle => &[Type::BOOL, Type::BOOL],
            Self::ReadSpends => &[Type::BYTEA_ARRAY],
            Self::Balance => &[Type::TEXT],
            Self::PeopleKey => &[Type::BYTEA],
            Self::FindPeople => &[Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::FLOAT8, Type::BYTEA],
            Self::RecordUse => &[Type::INT8_ARRAY, Type::INT8_ARRAY],
            Self::CountFree => {
                &[Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY]
            }
            Self::Fence | Self::Revision | Self::Version | Self::CheckWritable | Self::NoOp => &[],
        };
        [batch, others].concat()
    }

    /// Returns the names and types of the result columns.
    pub(super) fn columns(self) -> &'static [(&'static str, Type)] {
        match self {
            Self::FindKeys => &[
                ("is_read_only", Type::BOOL),
                ("key", Type::INT8),
                ("id", Type::TEXT),
                ("quota_limit", Type::INT8),
                ("window_seconds", Type::INT8),
                ("expires_at", Type::INT8),
                ("masked", Type::TEXT),
                ("digest", Type::BYTEA),
            ],
            Self::Revision => &[("is_read_only", Type::BOOL), ("n", Type::INT8), ("server", Type::INT8)],
            Self::ChangedKeys => &[("digest", Type::BYTEA)],
            Self::Hold => &[
                ("available", Type::INT8_ARRAY),
                ("amounts", Type::INT8_ARRAY),
                ("totals", Type::INT8_ARRAY),
                ("locked", Type::INT8_ARRAY),
            ],
            Self::Expired | Self::Holding => &[("id", Type::TEXT)],
            Self::Settle => {
                &[("count", Type::INT8), ("unpaid", Type::BYTEA_ARRAY), ("payers", Type::BYTEA_ARRAY)]
            }
            Self::Fence | Self::ReadSpends => &[
                ("is_read_only", Type::BOOL),
                ("lookup_id", Type::BYTEA),
                ("id", Type::TEXT),
                ("credits", Type::INT8),
                ("is_spent", Type::BOOL),
                ("payer", Type::BYTEA),
            ],
            Self::ReturnCredits => {
                &[("is_done", Type::BOOL), ("time_ms", Type::INT8), ("locked", Type::TEXT_ARRAY)]
            }
            Self::Expire | Self::CountSpends | Self::EndReceipts => {
                &[("is_done", Type::BOOL), ("time_ms", Type::INT8)]
            }
            Self::Balance => &[("granted", Type::INT8), ("spent", Type::INT8), ("held", Type::INT8)],
            Self::PeopleKey => &[("is_same", Type::BOOL)],
            Self::FindPeople => &[
                ("is_read_only", Type::BOOL),
                ("profile", Type::TEXT),
                ("has_opted_out", Type::BOOL),
                ("is_same_key", Type::BOOL),
            ],
            Self::Version => &[("n", Type::INT4)],
            Self::RecordUse | Self::CountFree | Self::CheckWritable | Self::NoOp => &[],
        }
    }

    /// Returns true if the statement fails on a standby, because it writes or checks that the server does.
    pub(super) fn needs_primary(self) -> bool {
        self.writes() || matches!(self, Self::RecordUse | Self::CheckWritable)
    }

    /// Returns true if the statement only reads, and reads holds.
    pub(super) fn reads_holds(self) -> bool {
        matches!(self, Self::Holding | Self::Expired)
    }

    /// Returns true if the statement may change the data.
    pub(super) fn writes(self) -> bool {
        matches!(
            self,
            Self::Hold
                | Self::Settle
                | Self::Fence
                | Self::Expire
                | Self::ReturnCredits
                | Self::CountSpends
                | Self::EndReceipts
                | Self::PeopleKey
                | Self::CountFree
        )
    }

    /// Returns the tables that the statement uses.
    pub(super) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::FindKeys | Self::ChangedKeys => &["api_key", "workspace"],
            Self::Revision => &["revision"],
            Self::Hold => &["workspace", "balance", "credit_hold", "credit_spend"],
            Self::Expired | Self::Holding => &["workspace", "credit_hold"],
            Self::Settle | Self::Fence => {
                &["workspace", "credit_hold", "credit_spend", "credit_receipt", "settlement"]
            }
            Self::ReadSpends => &["workspace", "credit_hold", "credit_spend"],
            Self::Expire => &["credit_hold", "settlement"],
            Self::ReturnCredits => &["settlement", "balance"],
            Self::CountSpends => &["settlement", "usage_day"],
            Self::EndReceipts => &["credit_receipt"],
            Self::FindPeople => &["person", "opt_out"],
            Self::RecordUse => &["api_key"],
            Self::CountFree => &["usage_day", "workspace"],
            Self::Balance | Self::PeopleKey | Self::Version | Self::CheckWritable | Self::NoOp => &[],
        }
    }

    /// Returns whether the statement continues to wait for a lock after it has `waited`.
    pub(super) fn waits_for_lock(self, waited: Duration) -> bool {
        let has_timeout = self.writes() && !matches!(self, Self::PeopleKey | Self::CountFree);
        !has_timeout || waited < LOCK_TIMEOUT
    }

    /// Returns the lookups whose holds a synchronous transaction locks.
    pub(super) fn locks(self, arguments: &[Option<Bytes>]) -> Result<Vec<Lookup>, SqlError> {
        let arguments = Arguments { types: self.parameters(), values: arguments };
        match self {
            Self::Settle | Self::Fence => {
                Ok(arguments.settlements()?.iter().map(|request| request.lookup).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns true if the reply to the statement waits until its transaction is durable.
    pub(super) fn is_synchronous(self, arguments: &[Option<Bytes>]) -> bool {
        matches!(self, Self::PeopleKey | Self::Fence)
            || self == Self::Settle
                && Arguments { types: self.parameters(), values: arguments }.get(8).unwrap_or(true)
    }

    /// Executes the statement and returns its rows.
    pub(super) fn run(
        self,
        database: &mut Database,
        now: i64,
        is_read_only: bool,
        arguments: &[Option<Bytes>],
    ) -> Result<Vec<DataRow>, SqlError> {
        let arguments = Arguments { types: self.parameters(), values: arguments };
        let row = |values: &[&(dyn ToSql + Sync)]| row(self.columns(), values);
        match self {
            Self::FindKeys => {
                let (digests, now): (Vec<Vec<u8>>, _) = (arguments.get(0)?, arguments.get(1)?);
                let found: Vec<_> =
                    digests.iter().filter_map(|digest| database.find_key(digest, now)).collect();
                let none = found.is_empty().then_some(None);
                let rows = found.iter().map(Some).chain(none).map(|key| {
                    let (rowid, w) = (key.map(|key| key.rowid), key.map(|key| key.workspace));
                    let quota = (w.map(|w| w.quota_limit), w.map(|w| i64::from(w.window_seconds)));
                    let (id, expires_at) = (w.map(|w| &w.id), key.and_then(|key| key.expires_at));
                    let masked = key.map(|key| if key.is_test { "enr_test_" } else { "enr_" });
                    let digest = key.map(|key| key.digest);
                    row(&[&is_read_only, &rowid, &id, &quota.0, &quota.1, &expires_at, &masked, &digest])
                });
                rows.collect()
            }
            Self::Revision => Ok(vec![row(&[&is_read_only, &database.revision(), &0_i64])?]),
            Self::ChangedKeys => {
                let changed = database.keys_changed(arguments.get(0)?).map(<[u8]>::to_vec);
                changed.collect::<Vec<_>>().iter().map(|digest| row(&[digest])).collect()
            }
            Self::Hold => {
                let Held { available, amounts, totals } = database.hold(&arguments.holds()?, now)?;
                let names: Vec<String> = arguments.get(0)?;
                let available: Vec<_> = names.iter().map(|name| available.get(name).copied()).collect();
                let numbers = (1..).zip(&names).filter(|(_, name)| database.is_locked(name));
                let locked: Vec<i64> = numbers.map(|(number, _)| number).collect();
                Ok(vec![row(&[&available, &amounts, &totals, &locked])?])
            }
            Self::Expired | Self::Holding => {
                let names: Vec<String> = arguments.get(0)?;
                let times = match self {
                    Self::Expired => arguments.get::<i64>(1)? + 1..now + 1,
                    _ => now + 1..i64::MAX,
                };
                let holds = database.holds().values();
                let holds = holds.filter(|hold| hold.credits > 0 && times.contains(&hold.expires_at));
                let ids = holds.map(|hold| &database.workspaces()[hold.workspace as usize - 1].id);
                let ids: BTreeSet<_> = ids.filter(|id| names.contains(id)).collect();
                ids.into_iter().map(|id| row(&[id])).collect()
            }
            Self::Settle => {
                let settled = database.settle(&arguments.settlements()?, arguments.get(7)?, now)?;
                let (unpaid, payers): (Vec<_>, Vec<_>) = settled.unpaid.into_iter().unzip();
                let unpaid: Vec<_> = unpaid.iter().map(|lookup| &lookup[..]).collect();
                let payers: Vec<_> =
                    payers.iter().map(|payer| payer.as_ref().map(|payer| &payer[..])).collect();
                Ok(vec![row(&[&(settled.ended as i64), &unpaid, &payers])?])
            }
            Self::Fence => {
                database.settle(&arguments.settlements()?, true, now)?;
                database.write_log();
                let mut rows = stored(database, arguments.get(1)?)?;
                for SettleRequest { lookup, workspace, receipt, .. } in arguments.settlements()? {
                    if let Some(payer) = receipt.and_then(|receipt| database.payer(&workspace, &receipt)) {
                        let values: [&(dyn ToSql + Sync); 6] =
                            [&false, &&lookup[..], &workspace, &0_i64, &false, &&payer[..]];
                        rows.push(row(&values)?);
                    }
                }
                Ok(rows)
            }
            Self::ReadSpends => {
                let nothing = None::<&[u8]>;
                let mut rows = vec![row(&[&is_read_only, &nothing, &"", &0_i64, &false, &nothing])?];
                rows.extend(stored(database, arguments.get(0)?)?);
                Ok(rows)
            }
            Self::ReturnCredits => {
                let (since, count_max) = (arguments.get(0)?, arguments.get::<i64>(1)? as usize);
                let (is_done, locked) =
                    database.return_credits(since, count_max, &arguments.get::<Vec<String>>(2)?);
                let done_at = locked.values().min().map_or(now, |first| now.min(*first));
                Ok(vec![row(&[&is_done, &done_at, &locked.into_keys().collect::<Vec<_>>()])?])
            }
            Self::Expire | Self::CountSpends | Self::EndReceipts => {
                let (since, count_max) = (arguments.get(0)?, arguments.get::<i64>(1)? as usize);
                let until = match self {
                    Self::EndReceipts => now.min(arguments.get(3)?) - arguments.get::<i64>(2)?,
                    _ => now,
                };
                let is_done = match self {
                    Self::CountSpends => database.count_spends(since, count_max),
                    Self::Expire => database.expire(since, count_max, until) < count_max,
                    _ => database.end_receipts(since, count_max, until) < count_max,
                };
                Ok(vec![row(&[&is_done, &until])?])
            }
            Self::Balance => match database.balance(&arguments.get::<String>(0)?) {
                Some([granted, spent, held]) => Ok(vec![row(&[&granted, &spent, &held])?]),
                None => Ok(Vec::new()),
            },
            Self::PeopleKey => Ok(vec![row(&[&database.check_people_key(arguments.get(0)?)])?]),
            Self::FindPeople => {
                let (hashes, opt_outs) = (arguments.hashes(0)?, arguments.hashes(1)?);
                let confidence_min = arguments.get(2)?;
                let is_same_key = !database.has_other_people_key(&arguments.get::<Vec<u8>>(3)?);
                let found = hashes.iter().zip(&opt_outs).map(|(hash, opt_out)| {
                    let profile = database.find_person(hash, confidence_min);
                    row(&[&is_read_only, &profile, &database.has_opted_out(opt_out), &is_same_key])
                });
                found.collect()
            }
            Self::Version => Ok(vec![row(&[&MIGRATIONS])?]),
            Self::CountFree => {
                let (names, keys): (Vec<String>, Vec<i64>) = (arguments.get(0)?, arguments.get(1)?);
                let (outcomes, lookups): (Vec<String>, Vec<i64>) = (arguments.get(2)?, arguments.get(3)?);
                let counts = names.into_iter().zip(keys).zip(outcomes).zip(lookups);
                let counts = counts.map(|(((name, key), outcome), lookups)| (name, key, outcome, lookups));
                database.count_free(counts);
                Ok(Vec::new())
            }
            Self::RecordUse | Self::CheckWritable | Self::NoOp => Ok(Vec::new()),
        }
    }
}

/// Returns what is stored of lookups: their holds and their spends.
fn stored(database: &Database, lookups: Vec<Vec<u8>>) -> Result<Vec<DataRow>, SqlError> {
    let mut rows = Vec::new();
    for lookup in lookups {
        let id: Lookup = lookup.as_slice().try_into().map_err(|_| SqlError::new("22P03", "16 bytes"))?;
        let held = database.holds().get(&id).map(|hold| (hold.workspace, hold.credits, false));
        let spent = database.spends().get(&id).map(|spend| (spend.workspace, spend.credits, true));
        for (workspace, credits, is_spent) in held.into_iter().chain(spent) {
            let id = &database.workspaces()[workspace as usize - 1].id;
            rows.push(row(
                Statement::Fence.columns(),
                &[&false, &lookup, id, &credits, &is_spent, &None::<&[u8]>],
            )?);
        }
    }
    Ok(rows)
}
