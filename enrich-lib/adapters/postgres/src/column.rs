//! Conversions of column values: timestamps and credits are `bigint`, lookup ids `bytea`.

use std::error::Error;

use crate::error::PostgresError;
use enrich_lib::model::{LookupId, Timestamp};

/// Converts a timestamp to a column value: milliseconds since the Unix epoch.
pub(crate) fn at(moment: Timestamp) -> i64 {
    bigint(moment.unix_ms())
}

/// Converts a column value in milliseconds since the Unix epoch to a timestamp.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(u64::try_from(ms).unwrap_or(0))
}

/// Maps the error of parsing a column to [`PostgresError::Unexpected`].
pub(crate) fn parsed<T, E: Error>(column: &'static str, value: Result<T, E>) -> Result<T, PostgresError> {
    value.map_err(|error| PostgresError::Unexpected { column, reason: error.to_string() })
}

/// Converts credits to a column value. Values above `i64::MAX` saturate; no workspace has that many credits.
pub(crate) fn bigint(credits: u64) -> i64 {
    i64::try_from(credits).unwrap_or(i64::MAX)
}

/// Converts a column value to credits. The schema rules out negative values.
pub(crate) fn credits(bigint: i64) -> u64 {
    u64::try_from(bigint).unwrap_or(0)
}

/// Converts a column value to a lookup id.
pub(crate) fn lookup_id(column: &'static str, bytes: &[u8]) -> Result<LookupId, PostgresError> {
    parsed(column, <[u8; 16]>::try_from(bytes)).map(LookupId::from_bytes)
}
