//! Conversions to SQL types: lookup ids as `bytea`, timestamps as `timestamptz`, credits as `bigint`.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::PostgresError;
use bytes::BytesMut;
use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_store::usage::Day;
use enrich_store::{StoreError, TokenDigest};
use tokio_postgres::GenericClient;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A lookup id as a `bytea` column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid(pub(crate) LookupId);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(LookupId::from_bytes(raw.try_into()?)))
    }

    accepts!(BYTEA);
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

/// Converts the id of a key to a column value.
pub(crate) fn key_number(id: KeyId) -> i64 {
    id.number().into()
}

/// Converts a column value to the id of a key.
pub(crate) fn key_id(column: &'static str, number: i64) -> Result<KeyId, PostgresError> {
    parsed(column, u32::try_from(number).map(KeyId::from_number))
}

/// Converts a day to a column value.
pub(crate) fn day_number(day: Day) -> i64 {
    day.number().into()
}

/// Converts a column value to a day.
pub(crate) fn day(number: i64) -> Day {
    Day::from_number(u32::try_from(number).unwrap_or(0))
}

/// Converts a column value in milliseconds since the Unix epoch to a timestamp.
pub(crate) fn time_ms(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(u64::try_from(ms).unwrap_or(0))
}

/// Converts a column value to a lookup id.
pub(crate) fn lookup_id(column: &'static str, bytes: &[u8]) -> Result<LookupId, PostgresError> {
    parsed(column, <[u8; 16]>::try_from(bytes)).map(LookupId::from_bytes)
}

/// Converts a column value to the digest of a token.
pub(crate) fn token_digest(column: &'static str, bytes: &[u8]) -> Result<TokenDigest, PostgresError> {
    parsed(column, <[u8; 32]>::try_from(bytes)).map(TokenDigest::from_bytes)
}

/// Returns the row id of a workspace that can be changed.
///
/// Errors: [`StoreError::WorkspaceDeleted`].
pub(crate) async fn live_workspace_rowid(
    client: &impl GenericClient,
    workspace: &WorkspaceId,
) -> Result<i64, PostgresError> {
    let rowid = workspace_rowid(client, workspace).await?;
    let select = "SELECT deleted_at IS NOT NULL FROM workspace WHERE rowid = $1";
    if client.query_one(select, &[&rowid]).await?.get(0) {
        return Err(StoreError::WorkspaceDeleted(workspace.clone()).into());
    }
    Ok(rowid)
}

/// Returns the row id of a workspace.
pub(crate) async fn workspace_rowid(
    client: &impl GenericClient,
    workspace: &WorkspaceId,
) -> Result<i64, PostgresError> {
    let row = client.query_opt("SELECT rowid FROM workspace WHERE id = $1", &[&workspace.as_str()]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
}
