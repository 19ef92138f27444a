//! Columns of other types than SQLite's.

use std::error::Error;

use enrich_lib::model::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Type};

/// A column that `parse` makes something of.
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

/// A time as a column has it: milliseconds since the Unix epoch.
pub(crate) fn ms(time: Timestamp) -> i64 {
    i64::try_from(time.unix_ms()).unwrap_or(i64::MAX)
}

/// A time out of a column.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(u64::try_from(ms).unwrap_or_default())
}
