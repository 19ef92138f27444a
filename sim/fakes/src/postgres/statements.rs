//! The SQL statements that the fake supports, each recognized by a function or table name.

use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use pgwire::messages::data::DataRow;
use postgres_types::{ToSql, Type};

use super::database::Database;
use super::rows::{Heartbeat, LeaseOutcome, LeaseRequest, LeaseTotal, SpendRequest};
use super::values::{Arguments, SqlError, Uuid, returns, row, spends, spends_by_lease_index};

/// The channel for change notifications.
pub(super) const CHANNEL: &str = "enrich";

/// The number of migrations that the fake reports as applied.
const MIGRATIONS: i32 = 2;

/// A supported statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Finds the workspace of a key.
    FindKey,
    /// Reads the keys that have changed since a revision.
    KeysChanged,
    NodeBegin,
    NodeBeat,
    NodeLeave,
    NodesEnd,
    LeaseTake,
    LeasesRecalled,
    LeaseReturn,
    LeaseShow,
    Settle,
    Charge,
    /// Updates the time of last use of keys. The fake ignores it.
    RecordUse,
    /// Adds free lookups to the usage. The fake ignores it.
    CountFree,
    /// Reads the balance of a workspace.
    Balance,
    /// Reads the spend of a lookup.
    FindSpend,
    /// Reads the number of applied migrations.
    Version,
    /// Reads the id of the process that serves the connection.
    Process,
    Listen,
    /// Checks that the server accepts writes, and sets `synchronous_commit`. The fake ignores other settings.
    Settings,
    /// Checks that the server accepts writes.
    CheckWritable,
    /// Has no effect in the fake.
    NoOp,
}

/// The text that identifies each statement. The first match applies.
const NAMES: [(&str, Statement); 21] = [
    ("node_begin(", Statement::NodeBegin),
    ("node_beat(", Statement::NodeBeat),
    ("node_leave(", Statement::NodeLeave),
    ("nodes_end(", Statement::NodesEnd),
    ("lease_take(", Statement::LeaseTake),
    ("leases_recalled(", Statement::LeasesRecalled),
    ("lease_return(", Statement::LeaseReturn),
    ("lease_show(", Statement::LeaseShow),
    ("settle(", Statement::Settle),
    ("charge(", Statement::Charge),
    ("count_free(", Statement::CountFree),
    ("UPDATE api_key", Statement::RecordUse),
    ("key_find(", Statement::FindKey),
    ("keys_changed(", Statement::KeysChanged),
    ("FROM account a WHERE a.id", Statement::Balance),
    ("FROM credit_spend s JOIN workspace", Statement::FindSpend),
    ("FROM migration", Statement::Version),
    ("pg_backend_pid(", Statement::Process),
    ("LISTEN", Statement::Listen),
    ("'synchronous_commit', 'on'", Statement::Settings),
    ("transaction_read_only", Statement::CheckWritable),
];

impl Statement {
    pub(super) fn parse(sql: &str) -> Result<Self, SqlError> {
        if sql.is_empty() {
            return Ok(Self::NoOp);
        }
        let statement = NAMES.iter().find(|(name, _)| sql.contains(name)).map(|(_, statement)| *statement);
        statement.ok_or_else(|| {
            SqlError::new("0A000", &format!("the fake does not support this statement: {sql}"))
        })
    }

    /// Returns the types of the parameters.
    pub(super) fn parameters(self) -> &'static [Type] {
        match self {
            Self::FindKey => &[Type::BYTEA, Type::TIMESTAMPTZ],
            Self::NodeBegin => &[Type::TEXT, Type::INT8],
            Self::KeysChanged | Self::NodeBeat => &[Type::INT8, Type::INT8],
            Self::NodeLeave => &[Type::INT8],
            Self::NodesEnd => &[Type::INT8],
            Self::LeaseTake => {
                &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::BOOL]
            }
            Self::LeasesRecalled => &[Type::INT8, Type::INT8],
            Self::LeaseReturn => {
                &[Type::INT8, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY]
            }
            Self::LeaseShow => &[Type::INT8, Type::INT8_ARRAY, Type::INT8_ARRAY],
            Self::Settle => &[
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::UUID_ARRAY,
                Type::INT4_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::TIMESTAMPTZ_ARRAY,
            ],
            Self::Charge => &[
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::UUID_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::TIMESTAMPTZ_ARRAY,
            ],
            Self::RecordUse => &[Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY],
            Self::CountFree => &[
                Type::INT8,
                Type::TEXT_ARRAY,
                Type::INT8_ARRAY,
                Type::TEXT_ARRAY,
                Type::INT8_ARRAY,
                Type::TIMESTAMPTZ,
            ],
            Self::Balance => &[Type::TEXT, Type::INT8],
            Self::FindSpend => &[Type::UUID, Type::TEXT],
            Self::Version
            | Self::Process
            | Self::Listen
            | Self::Settings
            | Self::CheckWritable
            | Self::NoOp => &[],
        }
    }

    /// Returns the names and types of the result columns.
    pub(super) fn columns(self) -> &'static [(&'static str, Type)] {
        match self {
            Self::FindKey => &[
                ("key", Type::INT8),
                ("workspace_id", Type::TEXT),
                ("quota_limit", Type::INT8),
                ("window_seconds", Type::INT4),
                ("expires_at", Type::TIMESTAMPTZ),
            ],
            Self::KeysChanged => &[("digest", Type::BYTEA)],
            Self::NodeBegin => &[("node_begin", Type::INT8)],
            Self::NodeBeat => &[("is_active", Type::BOOL), ("revision", Type::INT8)],
            Self::LeasesRecalled => &[
                ("names", Type::TEXT_ARRAY),
                ("workspaces", Type::INT8_ARRAY),
                ("numbers", Type::INT8_ARRAY),
                ("takes", Type::INT8_ARRAY),
                ("recalls", Type::INT8_ARRAY),
            ],
            Self::NodesEnd => &[("nodes_end", Type::INT8)],
            Self::LeaseTake => {
                &[("outcome", Type::TEXT), ("of_workspace", Type::INT8), ("taken", Type::INT8)]
            }
            Self::Settle => &[("settle", Type::BOOL_ARRAY)],
            Self::Charge => &[("charge", Type::BOOL_ARRAY)],
            Self::NodeLeave => &[("node_leave", Type::VOID)],
            Self::LeaseReturn => &[("lease_return", Type::INT8_ARRAY)],
            Self::LeaseShow => &[("lease_show", Type::VOID)],
            Self::CountFree => &[("count_free", Type::VOID)],
            Self::Balance => &[("granted", Type::INT8), ("spent", Type::INT8), ("held", Type::INT8)],
            Self::FindSpend => &[("credits", Type::INT8)],
            Self::Version => &[("n", Type::INT4)],
            Self::Process => &[("pg_backend_pid", Type::TEXT)],
            Self::RecordUse | Self::Listen | Self::Settings | Self::CheckWritable | Self::NoOp => &[],
        }
    }

    /// Returns true if the statement fails on a standby: it writes, locks rows or listens, or checks for a primary. `key_find`
    /// does the latter.
    pub(super) fn needs_primary(self) -> bool {
        !matches!(
            self,
            Self::KeysChanged
                | Self::LeasesRecalled
                | Self::Balance
                | Self::FindSpend
                | Self::Version
                | Self::Process
                | Self::NoOp
        )
    }

    /// Returns true if the statement may change the data. The fake ignores the times of use and the usage.
    pub(super) fn writes(self) -> bool {
        let is_no_change = matches!(
            self,
            Self::FindKey
                | Self::RecordUse
                | Self::CountFree
                | Self::Listen
                | Self::Settings
                | Self::CheckWritable
        );
        self.needs_primary() && !is_no_change
    }

    /// Executes the statement and returns its rows. A statement that must wait for a lock fails at once: see
    /// [`SqlError::lock_wait`].
    pub(super) fn run(
        self,
        database: &mut Database,
        now: i64,
        process: u64,
        arguments: &[Option<Bytes>],
    ) -> Result<Vec<DataRow>, SqlError> {
        let arguments = Arguments { types: self.parameters(), values: arguments };
        let row = |values: &[&(dyn ToSql + Sync)]| row(self.columns(), values).map(|row| vec![row]);
        let void = || Ok(vec![DataRow::new(BytesMut::from(&0_i32.to_be_bytes()[..]), 1)]);
        match self {
            Self::FindKey => {
                let found = database.find_key(&arguments.get::<Vec<u8>>(0)?);
                let (rowid, w) = (found.as_ref().map(|key| key.rowid), found.map(|key| key.workspace));
                let expires_at = None::<SystemTime>; // the fake's keys do not expire
                let quota = (w.map(|w| w.quota_limit), w.map(|w| w.window_seconds));
                row(&[&rowid, &w.map(|w| &w.id), &quota.0, &quota.1, &expires_at])
            }
            Self::KeysChanged => {
                let changed =
                    database.keys_changed(arguments.get(0)?).map(<[u8]>::to_vec).collect::<Vec<_>>();
                changed.iter().map(|digest| self::row(self.columns(), &[digest])).collect()
            }
            Self::NodeBegin => {
                row(&[&database.node_begin(&arguments.get::<String>(0)?, arguments.get(1)?, now)])
            }
            Self::NodeBeat => {
                let Heartbeat { is_active, revision } =
                    database.node_beat(arguments.get(0)?, arguments.get(1)?, now);
                row(&[&is_active, &revision])
            }
            Self::LeasesRecalled => {
                let recalls = database.leases_recalled(arguments.get(0)?, arguments.get::<i64>(1)? as usize);
                let names: Vec<_> = recalls.iter().map(|recall| recall.name.as_str()).collect();
                let workspaces: Vec<_> = recalls.iter().map(|recall| recall.workspace).collect();
                let leases: Vec<_> = recalls.iter().map(|recall| recall.lease).collect();
                let takes: Vec<_> = recalls.iter().map(|recall| recall.taken).collect();
                let numbers: Vec<_> = recalls.iter().map(|recall| recall.number).collect();
                row(&[&names, &workspaces, &leases, &takes, &numbers])
            }
            Self::NodeLeave => {
                database.node_leave(arguments.get(0)?, now);
                void()
            }
            Self::NodesEnd => row(&[&database.nodes_end(arguments.get(0)?, now)]),
            Self::LeaseTake => {
                let request = LeaseRequest {
                    number: arguments.get(2)?,
                    known: arguments.get(3)?,
                    needs: arguments.get(4)?,
                    wants: arguments.get(5)?,
                    again: arguments.get(6)?,
                };
                if database.has_locked_leases(&arguments.get::<String>(1)?) {
                    return Err(SqlError::new("57014", "canceling statement due to statement timeout"));
                }
                let taken =
                    database.lease_take(arguments.get(0)?, &arguments.get::<String>(1)?, request, now)?;
                let (outcome, total) = outcome(taken);
                row(&[&outcome, &total.map(|s| s.workspace), &total.map(|s| s.taken)])
            }
            Self::LeaseReturn => row(&[&database.lease_return(arguments.get(0)?, returns(&arguments)?)]),
            Self::LeaseShow => {
                let (workspaces, holds): (Vec<i64>, Vec<i64>) = (arguments.get(1)?, arguments.get(2)?);
                database.lease_show(arguments.get(0)?, workspaces.into_iter().zip(holds));
                void()
            }
            Self::Settle => {
                row(&[&database.settle(&unlocked(database, spends_by_lease_index(&arguments)?)?)?])
            }
            Self::Charge => row(&[&database.charge(&unlocked(database, spends(&arguments)?)?)?]),
            Self::Balance => match database.balance(&arguments.get::<String>(0)?, arguments.get(1)?) {
                Some([granted, spent, held]) => row(&[&granted, &spent, &held]),
                None => Ok(Vec::new()),
            },
            Self::FindSpend => {
                let spent = database.spent_by(&arguments.get::<Uuid>(0)?.0, &arguments.get::<String>(1)?);
                spent.map_or(Ok(Vec::new()), |credits| row(&[&credits]))
            }
            Self::CountFree => void(),
            Self::Version => row(&[&MIGRATIONS]),
            Self::Process => row(&[&process.to_string()]),
            Self::RecordUse | Self::Listen | Self::Settings | Self::CheckWritable | Self::NoOp => {
                Ok(Vec::new())
            }
        }
    }
}

fn outcome(taken: LeaseOutcome) -> (&'static str, Option<LeaseTotal>) {
    match taken {
        LeaseOutcome::Ended => ("ended", None),
        LeaseOutcome::Unknown => ("unknown", None),
        LeaseOutcome::Taken(total) => ("taken", Some(total)),
        LeaseOutcome::Recalled(total) => ("recalled", Some(total)),
        LeaseOutcome::Short(total) => ("short", Some(total)),
    }
}

/// Returns the spends, or an error if one of their leases is locked.
fn unlocked(database: &Database, spends: Vec<SpendRequest>) -> Result<Vec<SpendRequest>, SqlError> {
    match spends.iter().any(|spend| database.is_locked(spend.workspace, spend.epoch)) {
        true => Err(SqlError::new("55P03", "canceling statement due to lock timeout")),
        false => Ok(spends),
    }
}
