//! The arguments, rows and errors of statements.

use std::error::Error;

use bytes::{BufMut, Bytes, BytesMut};
use pgwire::messages::data::DataRow;
use postgres_types::{FromSql, IsNull, ToSql, Type};

use super::rows::{EmailHash, HoldRequest, Lookup, Receipt, SettleRequest, Violation};

/// How severe an error is. Exhaustive: a statement has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The transaction is aborted.
    Error,
    /// The session ends.
    Fatal,
    /// The server ends.
    Panic,
}

impl Severity {
    /// Returns the name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
        }
    }
}

/// An error reply of the fake.
#[derive(Debug)]
pub(super) struct SqlError {
    pub(super) severity: Severity,
    /// The SQLSTATE code (PostgreSQL documentation, appendix A).
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl SqlError {
    pub(super) fn new(code: &'static str, message: &str) -> Self {
        Self { severity: Severity::Error, code, message: message.to_owned() }
    }

    /// Creates an error that ends the session.
    pub(super) fn ending(severity: Severity, code: &'static str, message: &str) -> Self {
        Self { severity, ..Self::new(code, message) }
    }

    pub(super) fn read_only() -> Self {
        Self::new("25006", "the server is read-only")
    }

    pub(super) fn locked() -> Self {
        Self::new("55P03", "canceling statement due to lock timeout")
    }

    /// Returns whether another session has a lock that the statement needs.
    pub(super) fn is_lock(&self) -> bool {
        self.code == "55P03"
    }
}

impl From<Violation> for SqlError {
    fn from(violation: Violation) -> Self {
        let code = if violation.0.ends_with("_pkey") { "23505" } else { "23514" };
        Self::new(code, &violation.to_string())
    }
}

impl From<Box<dyn Error + Sync + Send>> for SqlError {
    fn from(error: Box<dyn Error + Sync + Send>) -> Self {
        Self::new("22P03", &error.to_string())
    }
}

/// The arguments of a statement.
pub(super) struct Arguments<'a> {
    pub(super) types: Vec<Type>,
    pub(super) values: &'a [Option<Bytes>],
}

impl Arguments<'_> {
    pub(super) fn get<T: for<'b> FromSql<'b>>(&self, at: usize) -> Result<T, SqlError> {
        let value = self.values.get(at).and_then(Option::as_deref);
        Ok(T::from_sql_nullable(&self.types[at], value)?)
    }

    /// Reads an array of hashes.
    pub(super) fn hashes(&self, at: usize) -> Result<Vec<EmailHash>, SqlError> {
        let hashes = self.get::<Vec<Vec<u8>>>(at)?.into_iter();
        hashes.map(|hash| hash.try_into().map_err(|_| SqlError::new("22P03", "16 bytes"))).collect()
    }

    pub(super) fn holds(&self) -> Result<Vec<HoldRequest>, SqlError> {
        let terms = self.get::<Vec<i64>>(3)?.into_iter().zip(self.get::<Vec<i64>>(5)?);
        let rows = self.lookups()?.into_iter().zip(terms).zip(self.receipts(6)?);
        Ok(rows
            .map(|(((lookup, workspace), (credits, ttl_ms)), receipt)| HoldRequest {
                lookup,
                workspace,
                credits,
                ttl_ms,
                receipt,
            })
            .collect())
    }

    pub(super) fn settlements(&self) -> Result<Vec<SettleRequest>, SqlError> {
        let days = self.get::<Vec<i64>>(5)?.into_iter().map(|at| at / 86_400_000);
        let groups = days.zip(self.get::<Vec<i64>>(4)?);
        let rows = self.lookups()?.into_iter().zip(self.get::<Vec<i64>>(3)?).zip(groups);
        Ok(rows
            .zip(self.receipts(6)?)
            .map(|((((lookup, workspace), credits), group), receipt)| SettleRequest {
                lookup,
                workspace,
                credits,
                group,
                receipt,
            })
            .collect())
    }

    /// Reads the receipts of a batch. None has one if the array is empty.
    pub(super) fn receipts(&self, at: usize) -> Result<impl Iterator<Item = Option<Receipt>>, SqlError> {
        let receipts = self.get::<Vec<Option<Vec<u8>>>>(at)?;
        let receipts = receipts.into_iter().map(|receipt| receipt.map(Receipt::try_from).transpose());
        let receipts =
            receipts.collect::<Result<Vec<_>, _>>().map_err(|_| SqlError::new("22P03", "16 bytes"))?;
        Ok(receipts.into_iter().chain(std::iter::repeat(None)))
    }

    /// Reads the first three arguments of a batch: the workspaces, the lookups, and the index of the
    /// workspace of each, from 1.
    fn lookups(&self) -> Result<Vec<(Lookup, String)>, SqlError> {
        let (names, lookups): (Vec<String>, Vec<Vec<u8>>) = (self.get(0)?, self.get(1)?);
        let numbers: Vec<i64> = self.get(2)?;
        lookups
            .into_iter()
            .zip(numbers)
            .map(|(lookup, number)| {
                let lookup = lookup.try_into().map_err(|_| SqlError::new("22P03", "16 bytes"))?;
                Ok((lookup, names[number as usize - 1].clone()))
            })
            .collect()
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
