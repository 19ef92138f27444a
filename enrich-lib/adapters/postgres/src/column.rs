//! Conversions to SQL types: lookup ids as `uuid`, timestamps as `timestamptz`, credits as `bigint`.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::PostgresError;
use bytes::BytesMut;
use enrich_lib::model::{LookupId, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A lookup id as a `uuid` column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid(pub(crate) LookupId);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(LookupId::from_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

/// Converts a timestamp to a column value.
pub(crate) fn at(moment: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(moment.unix_ms())
}

/// Converts a column value to a timestamp.
pub(crate) fn time(moment: SystemTime) -> Timestamp {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
