//! How our values travel: lookup ids as UUIDs, moments as `timestamptz`, credits as `bigint`.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use enrich_lib::model::{LookupId, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A lookup id in a column.
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

/// A moment for a column.
pub(crate) fn at(moment: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(moment.unix_ms())
}

/// Credits for a column. No workspace has as many as are cut off here.
pub(crate) fn bigint(credits: u64) -> i64 {
    i64::try_from(credits).unwrap_or(i64::MAX)
}

/// Credits in a column. None is negative: the tables see to it.
pub(crate) fn credits(bigint: i64) -> u64 {
    u64::try_from(bigint).unwrap_or(0)
}
