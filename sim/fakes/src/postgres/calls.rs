//! The SQL statements that the fake supports, each recognized by a function or table name.

use std::error::Error;

use bytes::{BufMut, Bytes, BytesMut};
use pgwire::messages::data::DataRow;
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::books::{Beat, Books, LeaseOutcome, Lookup, Settling, Slice, Violation, Wish};

/// The channel for change notifications.
pub(super) const CHANNEL: &str = "enrich";

/// The number of migrations that the fake reports as applied.
const MIGRATIONS: i32 = 2;

/// A supported statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    FindKey,
    Begin,
    Beat,
    Leave,
    End,
    Take,
    Return,
    Show,
    Settle,
    Charge,
    Void,
    /// Updates the time of last use of keys. The fake ignores it.
    NoteUse,
    Balance,
    /// Reads the number of applied migrations.
    Version,
    Listen,
    /// Has no effect in the fake, such as the settings of a connection.
    Nothing,
}

/// An error reply of the fake.
#[derive(Debug)]
pub(super) struct Fault {
    /// The SQLSTATE code (PostgreSQL documentation, appendix A).
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(code: &'static str, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::new("23514", &violation.to_string())
    }
}

impl From<Box<dyn Error + Sync + Send>> for Fault {
    fn from(error: Box<dyn Error + Sync + Send>) -> Self {
        Self::new("22P03", &error.to_string())
    }
}

/// The text that identifies each statement. The first match applies.
const NAMES: [(&str, Call); 16] = [
    ("node_begin(", Call::Begin),
    ("node_beat(", Call::Beat),
    ("node_leave(", Call::Leave),
    ("nodes_end(", Call::End),
    ("lease_take(", Call::Take),
    ("lease_return(", Call::Return),
    ("lease_show(", Call::Show),
    ("settle(", Call::Settle),
    ("charge(", Call::Charge),
    ("void(", Call::Void),
    ("UPDATE api_key", Call::NoteUse),
    ("FROM api_key", Call::FindKey),
    ("FROM account a WHERE a.id", Call::Balance),
    ("FROM migration", Call::Version),
    ("LISTEN", Call::Listen),
    ("SET ", Call::Nothing),
];

impl Call {
    pub(super) fn of(sql: &str) -> Result<Self, Fault> {
        if sql.is_empty() {
            return Ok(Self::Nothing);
        }
        let call = NAMES.iter().find(|(name, _)| sql.contains(name)).map(|(_, call)| *call);
        call.ok_or_else(|| Fault::new("0A000", &format!("the fake does not understand: {sql}")))
    }

    /// Returns the types of the parameters.
    pub(super) fn parameters(self) -> &'static [Type] {
        match self {
            Self::FindKey => &[Type::BYTEA],
            Self::Begin => &[Type::TEXT, Type::INT8],
            Self::Beat => &[Type::INT8, Type::INT8],
            Self::Leave => &[Type::INT8],
            Self::Take => &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8, Type::INT8, Type::BOOL],
            Self::Return => &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
            Self::Show => &[Type::INT8, Type::INT8_ARRAY, Type::INT8_ARRAY],
            Self::Settle => &[
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::UUID_ARRAY,
                Type::INT4_ARRAY,
                Type::INT8_ARRAY,
                Type::TIMESTAMPTZ_ARRAY,
            ],
            Self::Charge => &[
                Type::INT8_ARRAY,
                Type::INT8_ARRAY,
                Type::UUID_ARRAY,
                Type::INT8_ARRAY,
                Type::TIMESTAMPTZ_ARRAY,
            ],
            Self::Void => &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TIMESTAMPTZ_ARRAY],
            Self::NoteUse => &[Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY],
            Self::Balance => &[Type::TEXT, Type::INT8],
            Self::End | Self::Version | Self::Listen | Self::Nothing => &[],
        }
    }

    /// Returns the names and types of the result columns.
    pub(super) fn columns(self) -> &'static [(&'static str, Type)] {
        match self {
            Self::FindKey => &[
                ("rowid", Type::INT8),
                ("id", Type::TEXT),
                ("quota_limit", Type::INT8),
                ("window_seconds", Type::INT4),
            ],
            Self::Begin => &[("node_begin", Type::INT8)],
            Self::Beat => &[
                ("is_active", Type::BOOL),
                ("revision", Type::INT8),
                ("names", Type::TEXT_ARRAY),
                ("workspaces", Type::INT8_ARRAY),
                ("takes", Type::INT8_ARRAY),
                ("recalls", Type::INT8_ARRAY),
            ],
            Self::End => &[("nodes_end", Type::INT8)],
            Self::Take => &[("outcome", Type::TEXT), ("of_workspace", Type::INT8), ("taken", Type::INT8)],
            Self::Settle => &[("settle", Type::BOOL_ARRAY)],
            Self::Charge => &[("charge", Type::BOOL_ARRAY)],
            Self::Leave => &[("node_leave", Type::VOID)],
            Self::Return => &[("lease_return", Type::VOID)],
            Self::Show => &[("lease_show", Type::VOID)],
            Self::Void => &[("void", Type::VOID)],
            Self::Balance => &[("granted", Type::INT8), ("spent", Type::INT8), ("held", Type::INT8)],
            Self::Version => &[("n", Type::INT4)],
            Self::NoteUse | Self::Listen | Self::Nothing => &[],
        }
    }

    /// Executes the statement and returns its rows.
    pub(super) fn run(
        self,
        books: &mut Books,
        now: i64,
        given: &[Option<Bytes>],
    ) -> Result<Vec<DataRow>, Fault> {
        let given = Given { types: self.parameters(), values: given };
        let row = |values: &[&(dyn ToSql + Sync)]| row(self.columns(), values).map(|row| vec![row]);
        let nothing = || Ok(vec![DataRow::new(BytesMut::from(&0_i32.to_be_bytes()[..]), 1)]);
        match self {
            Self::FindKey => match books.find_key(&given.get::<Vec<u8>>(0)?) {
                Some(found) => {
                    let w = found.workspace;
                    row(&[&found.rowid, &w.id, &w.quota_limit, &w.window_seconds])
                }
                None => Ok(Vec::new()),
            },
            Self::Begin => row(&[&books.node_begin(&given.get::<String>(0)?, given.get(1)?, now)]),
            Self::Beat => {
                let Beat { lives, revision, recalls } = books.node_beat(given.get(0)?, given.get(1)?, now);
                let names: Vec<_> = recalls.iter().map(|recall| recall.name.as_str()).collect();
                let workspaces: Vec<_> = recalls.iter().map(|recall| recall.workspace).collect();
                let takes: Vec<_> = recalls.iter().map(|recall| recall.taken).collect();
                let numbers: Vec<_> = recalls.iter().map(|recall| recall.number).collect();
                row(&[&lives, &revision, &names, &workspaces, &takes, &numbers])
            }
            Self::Leave => {
                books.node_leave(given.get(0)?, now);
                nothing()
            }
            Self::End => row(&[&books.nodes_end(now)]),
            Self::Take => {
                let wish = Wish {
                    known: given.get(2)?,
                    needs: given.get(3)?,
                    wants: given.get(4)?,
                    again: given.get(5)?,
                };
                let taking = books.lease_take(given.get(0)?, &given.get::<String>(1)?, wish, now)?;
                let (outcome, slice) = outcome(taking);
                row(&[&outcome, &slice.map(|s| s.workspace), &slice.map(|s| s.taken)])
            }
            Self::Return => {
                books.lease_return(given.get(0)?, given.get(1)?, given.get(2)?, given.get(3)?)?;
                nothing()
            }
            Self::Show => {
                let (workspaces, holds): (Vec<i64>, Vec<i64>) = (given.get(1)?, given.get(2)?);
                books.lease_show(given.get(0)?, workspaces.into_iter().zip(holds));
                nothing()
            }
            Self::Settle => row(&[&books.settle(&settlings_of_leases(&given)?)?]),
            Self::Charge => row(&[&books.charge(&settlings(&given)?)?]),
            Self::Void => {
                books.void(given.get::<Vec<Uuid>>(2)?.into_iter().map(|id| id.0));
                nothing()
            }
            Self::Balance => match books.balance(&given.get::<String>(0)?, given.get(1)?) {
                Some([granted, spent, held]) => row(&[&granted, &spent, &held]),
                None => Ok(Vec::new()),
            },
            Self::Version => row(&[&MIGRATIONS]),
            Self::NoteUse | Self::Listen | Self::Nothing => Ok(Vec::new()),
        }
    }
}

fn outcome(taking: LeaseOutcome) -> (&'static str, Option<Slice>) {
    match taking {
        LeaseOutcome::Ended => ("ended", None),
        LeaseOutcome::Unknown => ("unknown", None),
        LeaseOutcome::Taken(slice) => ("taken", Some(slice)),
        LeaseOutcome::Recalled(slice) => ("recalled", Some(slice)),
        LeaseOutcome::Short(slice) => ("short", Some(slice)),
    }
}

fn settlings(given: &Given<'_>) -> Result<Vec<Settling>, Fault> {
    let (epochs, workspaces): (Vec<i64>, Vec<i64>) = (given.get(0)?, given.get(1)?);
    let (lookups, costs): (Vec<Uuid>, Vec<i64>) = (given.get(2)?, given.get(3)?);
    let rows = epochs.into_iter().zip(workspaces).zip(lookups).zip(costs);
    Ok(rows
        .map(|(((epoch, workspace), lookup), cost)| Settling { epoch, workspace, lookup: lookup.0, cost })
        .collect())
}

/// Reads the arguments of `settle`, which refer to leases by their index, from 1.
fn settlings_of_leases(given: &Given<'_>) -> Result<Vec<Settling>, Fault> {
    let (epochs, workspaces): (Vec<i64>, Vec<i64>) = (given.get(0)?, given.get(1)?);
    let (lookups, leases): (Vec<Uuid>, Vec<i32>) = (given.get(3)?, given.get(4)?);
    let rows = lookups.into_iter().zip(leases).zip(given.get::<Vec<i64>>(5)?);
    Ok(rows
        .map(|((lookup, lease), cost)| {
            let at = lease as usize - 1;
            Settling { epoch: epochs[at], workspace: workspaces[at], lookup: lookup.0, cost }
        })
        .collect())
}

struct Given<'a> {
    types: &'static [Type],
    values: &'a [Option<Bytes>],
}

impl Given<'_> {
    fn get<T: for<'b> FromSql<'b>>(&self, at: usize) -> Result<T, Fault> {
        let value = self.values.get(at).and_then(Option::as_deref);
        Ok(T::from_sql_nullable(&self.types[at], value)?)
    }
}

fn row(columns: &[(&str, Type)], values: &[&(dyn ToSql + Sync)]) -> Result<DataRow, Fault> {
    let mut data = BytesMut::new();
    for ((_, type_), value) in columns.iter().zip(values) {
        let mut field = BytesMut::new();
        match value.to_sql_checked(type_, &mut field)? {
            IsNull::Yes => data.put_i32(-1),
            IsNull::No => {
                data.put_i32(field.len() as i32);
                data.put_slice(&field);
            }
        }
    }
    Ok(DataRow::new(data, columns.len() as i16))
}

/// A lookup id as a `uuid` value.
#[derive(Clone, Copy, Debug)]
struct Uuid(Lookup);

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}
