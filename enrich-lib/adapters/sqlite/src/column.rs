//! Conversions between column values and the types of the model.

use std::error::Error;

use enrich_lib::model::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Type};

/// Reads a column and converts its value with `parse`.
pub(crate) fn parsed<C: FromSql, T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(C) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let failed = |e: E| {
        let kind = row.get_ref(column).map_or(Type::Null, |value| value.data_type());
        rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(e))
    };
    parse(row.get(column)?).map_err(failed)
}

/// Converts a time to a column value: milliseconds since the Unix epoch.
pub(crate) fn ms(time: Timestamp) -> i64 {
    i64::try_from(time.unix_ms()).unwrap_or(i64::MAX)
}

/// Converts a column value, in milliseconds since the Unix epoch, to a time.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(u64::try_from(ms).unwrap_or_default())
}
