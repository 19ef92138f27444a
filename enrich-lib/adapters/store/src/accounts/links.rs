//! One-time links: invitations, and links that reset a password.

use enrich_lib::model::{Timestamp, WorkspaceId};

use super::lock::{lock, lock_live, rowid};
use super::sessions::{ALL_BUT, end_and_record, end_sessions};
use super::transaction::{Accounts, Tx, transact};
use super::{log, members};
use crate::action::Action;
use crate::actor::Actor;
use crate::error::StoreError;
use crate::token::TokenDigest;
use crate::users::{Link, LinkPurpose, Role, USERS_MAX, UserEmail, UserId};
use crate::value::{Row, Value, values};

/// The columns of [`Link`].
const SELECT: &str = "SELECT l.digest, w.id, l.role, l.email, l.created_by, l.created_at, l.expires_at
     FROM member_link l JOIN workspace w ON w.rowid = l.workspace";

fn link(row: &mut Row) -> Result<Link, StoreError> {
    Ok(Link {
        digest: row.read()?,
        workspace: row.read()?,
        purpose: row.read::<Option<Role>>()?.map_or(LinkPurpose::Reset, LinkPurpose::Join),
        email: row.read()?,
        created_by: row.read()?,
        created_at: row.read()?,
        expires_at: row.read()?,
    })
}

impl Accounts {
    /// Creates a one-time link. A new link replaces an unused one for the same email in the same workspace.
    /// Expired links of the workspace are removed. The event is `member.invited` or `user.reset`.
    ///
    /// A link that resets the password ends the password: its hash becomes `reset` and the digest of the link,
    /// in hex, which is the hash of no password. It also ends all sessions of the user and deletes the open
    /// invitations that the user created, with their events.
    ///
    /// Errors: [`StoreError::TooManyUsers`]; [`StoreError::AlreadyMember`] for an invitation of a user;
    /// [`StoreError::UnknownUser`] for a reset of a user who does not exist.
    pub async fn create_link(&mut self, link: &Link, actor: &Actor<'_>) -> Result<(), StoreError> {
        transact!(self, tx, {
            let workspace = lock_live(tx, &link.workspace).await?;
            let select = "SELECT rowid FROM member WHERE workspace = $1 AND email = $2";
            let user = match tx.row(select, values![workspace, &link.email]).await? {
                Some(mut row) => Some(row.read()?),
                None => None,
            };
            let email = &link.email;
            let (role, action, subject) = match (link.purpose, user) {
                (LinkPurpose::Join(role), None) => {
                    (Some(role), Action::MemberInvited, log::user_with_role(email, role))
                }
                (LinkPurpose::Join(_), Some(_)) => {
                    return Err(StoreError::AlreadyMember(link.workspace.clone()));
                }
                (LinkPurpose::Reset, Some(_)) => (None, Action::UserReset, email.as_str().to_owned()),
                (LinkPurpose::Reset, None) => return Err(StoreError::UnknownUser),
            };
            let delete = "DELETE FROM member_link WHERE workspace = $1 AND expires_at <= $2";
            tx.execute(delete, values![workspace, actor.now]).await?;
            let select = "SELECT (SELECT count(*) FROM member WHERE workspace = $1)
                 + (SELECT count(*) FROM member_link WHERE workspace = $1 AND email <> $2)";
            let users: u32 = tx.value(select, values![workspace, &link.email]).await?;
            if user.is_none() && users >= USERS_MAX {
                return Err(StoreError::TooManyUsers(link.workspace.clone()));
            }
            let insert =
                "INSERT INTO member_link (digest, workspace, email, role, created_by, created_at, expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (workspace, email) DO UPDATE
                 SET digest = excluded.digest, role = excluded.role, created_by = excluded.created_by,
                     created_at = excluded.created_at, expires_at = excluded.expires_at";
            let Link { digest, created_by, created_at, expires_at, .. } = link;
            let row = values![digest, workspace, email, role, created_by, *created_at, *expires_at];
            tx.execute(insert, row).await?;
            log::record(tx, workspace, action, &subject, actor).await?;
            if let Some(user) = user {
                // Unlike an empty hash, it is secret: cookies are derived from it.
                let hash = format!("reset {}", hex::encode(digest.as_bytes()));
                let update = "UPDATE member SET password_hash = $1 WHERE rowid = $2";
                tx.execute(update, values![&hash, user]).await?;
                members::delete_invitations_by(tx, workspace, &link.email, actor).await?;
                end_and_record(tx, user, ALL_BUT, Value::Null, actor).await?;
            }
            Ok(())
        })
    }

    /// Returns an unused link that has not expired.
    pub async fn link(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError> {
        find(&mut *self.read().await?, digest, now).await
    }

    /// Returns the invitations to `workspace`, or to all, that are unused and have not expired, newest first.
    pub async fn invitations(
        &mut self,
        workspace: Option<&WorkspaceId>,
        now: Timestamp,
    ) -> Result<Vec<Link>, StoreError> {
        let mut tx = self.read().await?;
        let open = "l.role IS NOT NULL AND l.expires_at > $1";
        let Some(workspace) = workspace else { return links(&mut *tx, open, values![now]).await };
        let workspace = rowid(&mut *tx, workspace).await?;
        links(&mut *tx, &format!("{open} AND l.workspace = $2"), values![now, workspace]).await
    }

    /// Deletes an invitation to `workspace` by the id of its digest. Returns `false` if there is none. The
    /// event is `member.invitation_revoked`.
    pub async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        let start = hex::decode(id).unwrap_or_default();
        let delete =
            "DELETE FROM member_link WHERE workspace = $1 AND role IS NOT NULL AND substr(digest, 1, 8) = $2
             RETURNING email";
        transact!(self, tx, {
            let workspace = lock(tx, workspace).await?;
            let Some(mut row) = tx.row(delete, values![workspace, &start]).await? else { return Ok(false) };
            let email: UserEmail = row.read()?;
            log::record(tx, workspace, Action::InvitationRevoked, email.as_str(), actor).await?;
            Ok(true)
        })
    }

    /// Uses up a link and returns its user, or `None` if the link is unknown, used or expired.
    ///
    /// An invitation creates a user with `password_hash`. A reset sets the password, removes the second
    /// factor and the recovery codes, deletes the open invitations that the user created, and ends all
    /// sessions. `actor.name` is ignored: the author is the user. The event is `member.joined` or
    /// `user.password_changed`, and `user.totp_disabled` if there was a second factor.
    pub async fn use_link(
        &mut self,
        digest: &TokenDigest,
        password_hash: &str,
        actor: &Actor<'_>,
    ) -> Result<Option<UserId>, StoreError> {
        transact!(self, tx, {
            let Some(link) = find(tx, digest, actor.now).await? else { return Ok(None) };
            let (workspace, email) = (lock_live(tx, &link.workspace).await?, &link.email);
            // Another use of the link may have been committed before the lock.
            if tx.execute("DELETE FROM member_link WHERE digest = $1", values![digest]).await? == 0 {
                return Ok(None);
            }
            let actor = Actor { name: email.as_str(), ..*actor };
            let (user, action, subject) = match link.purpose {
                LinkPurpose::Join(role) => {
                    let insert = "INSERT INTO member (workspace, email, role, password_hash, created_at)
                         VALUES ($1, $2, $3, $4, $5) RETURNING rowid";
                    let row = values![workspace, email, role, password_hash, actor.now];
                    (tx.value(insert, row).await?, Action::MemberJoined, log::user_with_role(email, role))
                }
                LinkPurpose::Reset => {
                    let update = "UPDATE member SET password_hash = $1 WHERE workspace = $2 AND email = $3
                         RETURNING rowid, totp_secret";
                    let row = tx.row(update, values![password_hash, workspace, email]).await?;
                    let mut row = row.unwrap_or_default();
                    let (user, secret): (_, Option<Vec<u8>>) = (row.read()?, row.read()?);
                    members::set_totp(tx, user, None, &[]).await?;
                    if secret.is_some() {
                        log::record(tx, workspace, Action::TotpDisabled, email.as_str(), &actor).await?;
                    }
                    members::delete_invitations_by(tx, workspace, email, &actor).await?;
                    end_sessions(tx, user, None, actor.now).await?;
                    (user, Action::PasswordChanged, email.as_str().to_owned())
                }
            };
            log::record(tx, workspace, action, &subject, &actor).await?;
            Ok(Some(user))
        })
    }
}

async fn find(tx: &mut Tx<'_>, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError> {
    Ok(links(tx, "l.digest = $1 AND l.expires_at > $2", values![digest, now]).await?.pop())
}

/// Reads the links that match `condition`, newest first.
async fn links(tx: &mut Tx<'_>, condition: &str, values: &[Value<'_>]) -> Result<Vec<Link>, StoreError> {
    tx.rows(&format!("{SELECT} WHERE {condition} ORDER BY l.created_at DESC, l.digest"), values, link).await
}
