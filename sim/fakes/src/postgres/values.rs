//! The arguments, rows and errors of statements.

use std::error::Error;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use pgwire::messages::data::DataRow;
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::rows::{Lookup, ReturnRequest, SpendRequest, Violation};

/// The `lock_timeout` of `settle` and `charge`, and the `statement_timeout` of the other statements.
const LOCK_WAITS: [(&str, Duration); 2] =
    [("55P03", Duration::from_millis(250)), ("57014", Duration::from_secs(1))];

/// An error reply of the fake.
#[derive(Debug)]
pub(super) struct SqlError {
    /// The SQLSTATE code (PostgreSQL documentation, appendix A).
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl SqlError {
    pub(super) fn new(code: &'static str, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }

    /// Returns how long a statement waits for a lock before it fails with this error.
    pub(super) fn lock_wait(&self) -> Option<Duration> {
        LOCK_WAITS.iter().find(|(code, _)| self.code == *code).map(|(_, wait)| *wait)
    }
}

impl From<Violation> for SqlError {
    fn from(violation: Violation) -> Self {
        Self::new("23514", &violation.to_string())
    }
}

impl From<Box<dyn Error + Sync + Send>> for SqlError {
    fn from(error: Box<dyn Error + Sync + Send>) -> Self {
        Self::new("22P03", &error.to_string())
    }
}

pub(super) fn returns(arguments: &Arguments<'_>) -> Result<Vec<ReturnRequest>, SqlError> {
    let (workspaces, numbers): (Vec<i64>, Vec<i64>) = (arguments.get(1)?, arguments.get(2)?);
    let (returned, seen): (Vec<Option<i64>>, Vec<i64>) = (arguments.get(3)?, arguments.get(4)?);
    let rows = workspaces.into_iter().zip(numbers).zip(returned).zip(seen);
    Ok(rows
        .map(|(((workspace, number), returned), seen)| ReturnRequest { workspace, number, returned, seen })
        .collect())
}

pub(super) fn spends(arguments: &Arguments<'_>) -> Result<Vec<SpendRequest>, SqlError> {
    let (epochs, workspaces): (Vec<i64>, Vec<i64>) = (arguments.get(0)?, arguments.get(1)?);
    let (lookups, costs): (Vec<Uuid>, Vec<i64>) = (arguments.get(2)?, arguments.get(4)?);
    let rows = epochs.into_iter().zip(workspaces).zip(lookups).zip(costs);
    Ok(rows
        .map(|(((epoch, workspace), lookup), cost)| SpendRequest { epoch, workspace, lookup: lookup.0, cost })
        .collect())
}

/// Reads the arguments of `settle`, which refer to leases by their index, from 1.
pub(super) fn spends_by_lease_index(arguments: &Arguments<'_>) -> Result<Vec<SpendRequest>, SqlError> {
    let (epochs, workspaces): (Vec<i64>, Vec<i64>) = (arguments.get(0)?, arguments.get(1)?);
    let (lookups, leases): (Vec<Uuid>, Vec<i32>) = (arguments.get(3)?, arguments.get(4)?);
    let rows = lookups.into_iter().zip(leases).zip(arguments.get::<Vec<i64>>(6)?);
    Ok(rows
        .map(|((lookup, lease), cost)| {
            let at = lease as usize - 1;
            SpendRequest { epoch: epochs[at], workspace: workspaces[at], lookup: lookup.0, cost }
        })
        .collect())
}

/// The arguments of a statement.
pub(super) struct Arguments<'a> {
    pub(super) types: &'static [Type],
    pub(super) values: &'a [Option<Bytes>],
}

impl Arguments<'_> {
    pub(super) fn get<T: for<'b> FromSql<'b>>(&self, at: usize) -> Result<T, SqlError> {
        let value = self.values.get(at).and_then(Option::as_deref);
        Ok(T::from_sql_nullable(&self.types[at], value)?)
    }
}

/// Encodes a result row.
pub(super) fn row(columns: &[(&str, Type)], values: &[&(dyn ToSql + Sync)]) -> Result<DataRow, SqlError> {
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
pub(super) struct Uuid(pub(super) Lookup);

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
