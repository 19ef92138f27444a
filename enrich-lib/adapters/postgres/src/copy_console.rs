//! Copies the users, the free usage and the audit log of another store, in the last transaction of a copy.

use std::collections::BTreeMap;

use enrich_store::records::{CopiedConsole, CopiedMember, CopiedUser, RemovedSpends};
use enrich_store::usage::UsageRow;
use enrich_store::users::AuditEvent;
use tokio_postgres::Transaction;

use crate::column::{at, bigint, day_number, key_number};
use crate::error::PostgresError;
use crate::members;

/// Maps the row id of a row in the source store to its row id in this store.
pub(crate) fn target_rowid(rowids: &BTreeMap<i64, i64>, source: i64) -> Result<i64, PostgresError> {
    rowids.get(&source).copied().ok_or(PostgresError::CopyChanged)
}

/// Adds all rows. `workspaces` maps the row ids of the source store to those of this store.
pub(crate) async fn add(
    tx: &Transaction<'_>,
    console: &CopiedConsole,
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    let users = add_users(tx, &console.users).await?;
    add_members(tx, &console.members, &users, workspaces).await?;
    add_usage(tx, &console.usage, workspaces).await?;
    add_removed(tx, &console.removed, workspaces).await?;
    add_events(tx, &console.audit_log, workspaces).await
}

/// Adds the users that do not exist, and returns the row ids of all by their row ids in the source store.
async fn add_users(tx: &Transaction<'_>, copied: &[CopiedUser]) -> Result<BTreeMap<i64, i64>, PostgresError> {
    let mut copied: Vec<_> = copied.iter().collect();
    // The lock order of two copies that run at once.
    copied.sort_by_key(|copied| &copied.user.email);
    let mut rowids = BTreeMap::new();
    for CopiedUser { user, recovery_codes } in copied {
        let insert =
            "INSERT INTO console_user (email, password_hash, totp_secret, totp_last_step, created_at)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (email) DO NOTHING RETURNING rowid";
        let (secret, step) = match &user.totp {
            Some(totp) => (Some(&totp.secret), bigint(totp.last_step)),
            None => (None, 0),
        };
        let (email, created_at) = (user.email.as_str(), at(user.created_at));
        let made = tx.query_opt(insert, &[&email, &user.password_hash, &secret, &step, &created_at]).await?;
        let rowid = if let Some(row) = made {
            let rowid = row.get(0);
            members::add_recovery_codes(tx, rowid, recovery_codes.iter()).await?;
            rowid
        } else {
            let select = "SELECT rowid FROM console_user WHERE email = $1 FOR KEY SHARE";
            // A user who was removed at this moment has no row.
            tx.query_opt(select, &[&email]).await?.ok_or(PostgresError::CopyChanged)?.get(0)
        };
        rowids.insert(user.id.0, rowid);
    }
    Ok(rowids)
}

async fn add_members(
    tx: &Transaction<'_>,
    copied: &[CopiedMember],
    users: &BTreeMap<i64, i64>,
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    for CopiedMember { user, workspace, role, joined_at } in copied {
        let insert = "INSERT INTO membership (workspace, user_id, role, joined_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING";
        let (workspace, user) = (target_rowid(workspaces, *workspace)?, target_rowid(users, *user)?);
        tx.execute(insert, &[&workspace, &user, &role.as_str(), &at(*joined_at)]).await?;
    }
    Ok(())
}

/// Adds the usage to that of the copied spends, which the triggers have added.
async fn add_usage(
    tx: &Transaction<'_>,
    copied: &[(i64, UsageRow)],
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    let of: Vec<_> =
        copied.iter().map(|(source, _)| target_rowid(workspaces, *source)).collect::<Result<_, _>>()?;
    let days: Vec<_> = copied.iter().map(|(_, row)| day_number(row.day)).collect();
    let keys: Vec<_> = copied.iter().map(|(_, row)| key_number(row.key)).collect();
    let outcomes: Vec<_> = copied.iter().map(|(_, row)| row.outcome.as_str()).collect();
    let lookups: Vec<_> = copied.iter().map(|(_, row)| bigint(row.lookups)).collect();
    let credits: Vec<_> = copied.iter().map(|(_, row)| bigint(row.credits)).collect();
    let insert = "INSERT INTO usage_day AS u (workspace, day, key, outcome, epoch, lookups, credits)
         SELECT i.workspace, date '1970-01-01' + i.day, i.key, i.outcome, 0, i.lookups, i.credits
         FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
             AS i (workspace, day, key, outcome, lookups, credits)
         ON CONFLICT (workspace, day, key, outcome, epoch)
         DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits";
    tx.execute(insert, &[&of, &days, &keys, &outcomes, &lookups, &credits]).await?;
    Ok(())
}

/// Adds the sums of removed spends.
async fn add_removed(
    tx: &Transaction<'_>,
    copied: &[(i64, RemovedSpends)],
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    for (source, RemovedSpends { key, lookups, credits }) in copied {
        let insert =
            "INSERT INTO removed_spend (workspace, key, epoch, lookups, credits) VALUES ($1, $2, 0, $3, $4)";
        let workspace = target_rowid(workspaces, *source)?;
        tx.execute(insert, &[&workspace, &key_number(*key), &bigint(*lookups), &bigint(*credits)]).await?;
    }
    Ok(())
}

async fn add_events(
    tx: &Transaction<'_>,
    copied: &[(i64, AuditEvent)],
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    let of: Vec<_> =
        copied.iter().map(|(source, _)| target_rowid(workspaces, *source)).collect::<Result<_, _>>()?;
    let times: Vec<_> = copied.iter().map(|(_, event)| at(event.at)).collect();
    let actors: Vec<_> = copied.iter().map(|(_, event)| event.actor.as_str()).collect();
    let actions: Vec<_> = copied.iter().map(|(_, event)| event.action.as_str()).collect();
    let subjects: Vec<_> = copied.iter().map(|(_, event)| event.subject.as_str()).collect();
    let addresses: Vec<_> = copied.iter().map(|(_, event)| event.address).collect();
    let insert = "INSERT INTO audit_event (workspace, at, actor, action, subject, address)
         SELECT i.workspace, i.at, i.actor, i.action, i.subject, i.address
         FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::inet[])
             WITH ORDINALITY AS i (workspace, at, actor, action, subject, address, n)
         ORDER BY i.n";
    tx.execute(insert, &[&of, &times, &actors, &actions, &subjects, &addresses]).await?;
    Ok(())
}
