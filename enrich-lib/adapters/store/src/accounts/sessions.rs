//! Sessions of signed-in users.

use enrich_lib::model::Timestamp;

use super::log;
use super::member::Member;
use super::transaction::{Accounts, Tx, transact};
use crate::action::Action;
use crate::actor::Actor;
use crate::error::StoreError;
use crate::token::TokenDigest;
use crate::users::{Renewal, SESSIONS_MAX, Session, User, UserId};
use crate::value::{Row, Value, values};

/// The columns of [`Session`].
const COLUMNS: &str = "digest, member, created_at, authenticated_at, last_seen_at, address, user_agent";

fn session(row: &mut Row) -> Result<Session, StoreError> {
    Ok(Session {
        digest: row.read()?,
        user: row.read()?,
        created_at: row.read()?,
        authenticated_at: row.read()?,
        last_seen_at: row.read()?,
        address: row.read()?,
        user_agent: row.read()?,
    })
}

impl Accounts {
    /// Stores a new session of `user`, and removes all sessions that were last used before `used_before`. If
    /// the user has [`SESSIONS_MAX`] others, ends those that were not used for the longest time. The event is
    /// `user.signed_in`.
    ///
    /// Returns `false`, and stores nothing, if the password or the second factor was changed since `user` was
    /// read: they were verified with what was read.
    pub async fn begin_session(
        &mut self,
        session: &Session,
        user: &User,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        transact!(self, tx, {
            let Some(member) = Member::lock_verified(tx, user).await? else { return Ok(false) };
            see(tx, user.id, session.last_seen_at).await?;
            let delete = "DELETE FROM member_session WHERE last_seen_at < $1";
            tx.execute(delete, values![used_before]).await?;
            let delete = "DELETE FROM member_session WHERE member = $1 AND digest NOT IN
                 (SELECT digest FROM member_session WHERE member = $1 ORDER BY last_seen_at DESC, digest LIMIT $2)";
            tx.execute(delete, values![user.id, SESSIONS_MAX - 1]).await?;
            let insert =
                format!("INSERT INTO member_session ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)");
            let Session { digest, created_at, authenticated_at, last_seen_at, address, user_agent, .. } =
                session;
            let times = [*created_at, *authenticated_at, *last_seen_at];
            let row = values![digest, user.id, times[0], times[1], times[2], *address, user_agent];
            tx.execute(&insert, row).await?;
            log::record(tx, member.workspace, Action::SignedIn, member.email.as_str(), actor).await?;
            Ok(true)
        })
    }

    /// Returns a session.
    pub async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError> {
        Ok(self.sessions_with("digest = $1", values![digest]).await?.pop())
    }

    /// Returns the sessions of a user, last used first.
    pub async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError> {
        self.sessions_with("member = $1", values![user]).await
    }

    async fn sessions_with(
        &mut self,
        condition: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Session>, StoreError> {
        let select = format!(
            "SELECT {COLUMNS} FROM member_session WHERE {condition} ORDER BY last_seen_at DESC, digest"
        );
        self.read().await?.rows(&select, values, session).await
    }

    /// Records the use of a session, unless a later one is recorded. Does nothing if the session has ended.
    pub async fn touch_session(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx, {
            see_member(tx, digest, now).await?;
            let update =
                "UPDATE member_session SET last_seen_at = $2 WHERE digest = $1 AND last_seen_at < $2";
            tx.execute(update, values![digest, now]).await?;
            Ok(())
        })
    }

    /// Renews a session after the user entered the password again.
    ///
    /// Errors: [`StoreError::NotAllowed`] if the session has ended.
    pub async fn renew_session(&mut self, renewal: &Renewal, now: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx, {
            see_member(tx, &renewal.old, now).await?;
            if renew(tx, renewal, now).await? { Ok(()) } else { Err(StoreError::NotAllowed) }
        })
    }

    /// Ends the session of `user` whose digest has this id. Returns `false` if there is none. The event is
    /// `user.sessions_ended`.
    ///
    /// `actor` must not require the session that ends.
    pub async fn end_session(
        &mut self,
        user: UserId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        let Ok(start) = hex::decode(id) else { return Ok(false) };
        let delete = "DELETE FROM member_session WHERE member = $1 AND substr(digest, 1, 8) = $2";
        transact!(self, tx, Ok(end_and_record(tx, user, delete, (&start).into(), actor).await? > 0))
    }

    /// Ends all sessions of a user except `keep`, and returns their number. The event is
    /// `user.sessions_ended`, unless there are none.
    pub async fn end_sessions(
        &mut self,
        user: UserId,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<u64, StoreError> {
        transact!(self, tx, end_and_record(tx, user, ALL_BUT, keep.into(), actor).await)
    }
}

/// Deletes the sessions of the user `$1` except `$2`.
pub(super) const ALL_BUT: &str =
    "DELETE FROM member_session WHERE member = $1 AND digest IS DISTINCT FROM $2";

/// Ends all sessions of a user after a change of the password or the second factor, except the renewed one.
pub(super) async fn end_sessions(
    tx: &mut Tx<'_>,
    user: UserId,
    renewal: Option<&Renewal>,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.execute(ALL_BUT, values![user, renewal.map(|renewal| &renewal.old)]).await?;
    if let Some(renewal) = renewal {
        renew(tx, renewal, now).await?;
    }
    Ok(())
}

/// Gives a session another token and records that the user entered the password. The creation date stays, so
/// that the session does not last longer. Returns `false` if it has ended.
async fn renew(tx: &mut Tx<'_>, Renewal { old, new }: &Renewal, now: Timestamp) -> Result<bool, StoreError> {
    let update = "UPDATE member_session SET digest = $2, authenticated_at = $3,
             last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END
         WHERE digest = $1";
    Ok(tx.execute(update, values![old, new, now]).await? == 1)
}

/// Ends sessions of a user with a statement that takes the user and `value`. Records and returns their
/// number.
pub(super) async fn end_and_record(
    tx: &mut Tx<'_>,
    user: UserId,
    delete: &str,
    value: Value<'_>,
    actor: &Actor<'_>,
) -> Result<u64, StoreError> {
    let member = match Member::lock(tx, user).await {
        Err(StoreError::UnknownUser) if actor.authority.is_none() => return Ok(0),
        Err(StoreError::UnknownUser) => return Err(StoreError::NotAllowed),
        member => member?,
    };
    log::authorize(tx, member.workspace, actor).await?;
    let ended = tx.execute(delete, &[user.into(), value]).await?;
    if ended > 0 {
        log::record(
            tx,
            member.workspace,
            Action::SessionsEnded,
            &format!("{} ({ended})", member.email.as_str()),
            actor,
        )
        .await?;
    }
    Ok(ended)
}

/// Records that a user was active. A transaction changes a user before the user's sessions.
async fn see(tx: &mut Tx<'_>, user: UserId, now: Timestamp) -> Result<(), StoreError> {
    let update = "UPDATE member SET last_seen_at = $2
         WHERE rowid = $1 AND (last_seen_at IS NULL OR last_seen_at < $2)";
    tx.execute(update, values![user, now]).await?;
    Ok(())
}

/// Records that the user of a session was active.
async fn see_member(tx: &mut Tx<'_>, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
    let select = "SELECT member FROM member_session WHERE digest = $1";
    match tx.row(select, values![digest]).await? {
        Some(mut row) => see(tx, row.read()?, now).await,
        None => Ok(()),
    }
}
