//! The sessions of signed-in users. They are unrelated to the sessions of nodes.
//!
//! The row of a user is locked before those of its sessions.

use enrich_lib::model::Timestamp;
use enrich_store::users::{Session, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use tokio_postgres::{Row, Transaction};

use crate::audit_log;
use crate::column::{at, parsed, time, token_digest};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

const SELECT_SESSIONS: &str = "SELECT digest, member, created_at, authenticated_at, last_seen_at, address, user_agent FROM member_session";

pub(crate) async fn begin(
    client: &mut Client,
    session: &Session,
    used_before: Timestamp,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let update = "UPDATE member SET last_seen_at = greatest(last_seen_at, $2) WHERE rowid = $1 RETURNING workspace, email";
    let (user, seen_at) = (session.user.0, at(session.last_seen_at));
    let user_row = tx.query_opt(update, &[&user, &seen_at]).await?.ok_or(StoreError::UnknownUser)?;
    let email: UserEmail = parsed("member.email", user_row.get::<_, &str>(1).parse())?;
    let delete = "DELETE FROM member_session WHERE digest IN (
             SELECT digest FROM member_session WHERE last_seen_at < $1 FOR UPDATE SKIP LOCKED
         )";
    tx.execute(delete, &[&at(used_before)]).await?;
    let insert = "INSERT INTO member_session
             (digest, member, created_at, authenticated_at, last_seen_at, address, user_agent)
         VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let digest = session.digest.as_bytes().as_slice();
    let (created_at, authenticated_at) = (at(session.created_at), at(session.authenticated_at));
    let (address, user_agent) = (session.address, &session.user_agent);
    tx.execute(insert, &[&digest, &user, &created_at, &authenticated_at, &seen_at, &address, user_agent])
        .await?;
    audit_log::record(&tx, user_row.get(0), &Event::SignedIn(&email), actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn find(client: &Client, digest: &TokenDigest) -> Result<Option<Session>, PostgresError> {
    let select = format!("{SELECT_SESSIONS} WHERE digest = $1");
    let row = client.query_opt(&select, &[&digest.as_bytes().as_slice()]).await?;
    row.as_ref().map(session).transpose()
}

pub(crate) async fn touch(
    client: &mut Client,
    digest: &TokenDigest,
    now: Timestamp,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    see_member(&tx, digest, now).await?;
    let update = "UPDATE member_session SET last_seen_at = greatest(last_seen_at, $2) WHERE digest = $1";
    tx.execute(update, &[&digest.as_bytes().as_slice(), &at(now)]).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn renew(
    client: &mut Client,
    digest: &TokenDigest,
    new: &TokenDigest,
    now: Timestamp,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    see_member(&tx, digest, now).await?;
    let update = "UPDATE member_session SET digest = $2, last_seen_at = greatest(last_seen_at, $3),
             authenticated_at = greatest(authenticated_at, $3)
         WHERE digest = $1";
    tx.execute(update, &[&digest.as_bytes().as_slice(), &new.as_bytes().as_slice(), &at(now)]).await?;
    Ok(tx.commit().await?)
}

/// Records the use of a session in the row of its user, and locks this row.
async fn see_member(tx: &Transaction<'_>, digest: &TokenDigest, now: Timestamp) -> Result<(), PostgresError> {
    let update = "UPDATE member SET last_seen_at = greatest(last_seen_at, $2)
         WHERE rowid = (SELECT member FROM member_session WHERE digest = $1)";
    tx.execute(update, &[&digest.as_bytes().as_slice(), &at(now)]).await?;
    Ok(())
}

pub(crate) async fn list(client: &Client, user: UserId) -> Result<Vec<Session>, PostgresError> {
    let select = format!("{SELECT_SESSIONS} WHERE member = $1 ORDER BY last_seen_at DESC, digest");
    client.query(&select, &[&user.0]).await?.iter().map(session).collect()
}

pub(crate) async fn end(
    client: &mut Client,
    user: UserId,
    id: &str,
    actor: &Actor<'_>,
) -> Result<bool, PostgresError> {
    let delete = "DELETE FROM member_session WHERE member = $1 AND encode(substr(digest, 1, 8), 'hex') = $2";
    Ok(end_and_record(client, user, delete, &id, actor).await? > 0)
}

pub(crate) async fn end_all(
    client: &mut Client,
    user: UserId,
    keep: Option<&TokenDigest>,
    actor: &Actor<'_>,
) -> Result<u64, PostgresError> {
    end_and_record(client, user, DELETE_OTHERS, &digest(keep), actor).await
}

/// Ends all sessions of a user except `keep`. The caller has locked the user's row.
pub(crate) async fn end_others(
    tx: &Transaction<'_>,
    user: i64,
    keep: Option<&TokenDigest>,
) -> Result<(), PostgresError> {
    tx.execute(DELETE_OTHERS, &[&user, &digest(keep)]).await?;
    Ok(())
}

const DELETE_OTHERS: &str = "DELETE FROM member_session WHERE member = $1 AND digest IS DISTINCT FROM $2";

fn digest(digest: Option<&TokenDigest>) -> Option<&[u8]> {
    digest.map(|digest| digest.as_bytes().as_slice())
}

/// Ends sessions of a user with a statement that takes the user and `value`. Records and returns their number.
async fn end_and_record(
    client: &mut Client,
    user: UserId,
    delete: &str,
    value: Value<'_>,
    actor: &Actor<'_>,
) -> Result<u64, PostgresError> {
    let tx = client.transaction().await?;
    let lock = "SELECT workspace, email FROM member WHERE rowid = $1 FOR NO KEY UPDATE";
    let Some(row) = tx.query_opt(lock, &[&user.0]).await? else { return Ok(0) };
    let ended = tx.execute(delete, &[&user.0, value]).await?;
    if ended > 0 {
        let email: UserEmail = parsed("member.email", row.get::<_, &str>(1).parse())?;
        audit_log::record(&tx, row.get(0), &Event::SessionsEnded(&email, ended), actor).await?;
    }
    tx.commit().await?;
    Ok(ended)
}

fn session(row: &Row) -> Result<Session, PostgresError> {
    Ok(Session {
        digest: token_digest("member_session.digest", row.get(0))?,
        user: UserId(row.get(1)),
        created_at: time(row.get(2)),
        authenticated_at: time(row.get(3)),
        last_seen_at: time(row.get(4)),
        address: row.get(5),
        user_agent: row.get(6),
    })
}
