//! Copies the users, the free usage and the audit log of another store, in the last transaction of a copy.

use std::collections::BTreeMap;

use enrich_store::records::{CopiedConsole, CopiedUser, RemovedSpends};
use enrich_store::usage::UsageRow;
use enrich_store::users::AuditEvent;
use tokio_postgres::Transaction;

use crate::column::{at, bigint, day_number, key_number};
use crate::connect::pool::Parameter;
use crate::error::PostgresError;

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
    add_users(tx, &console.users, workspaces).await?;
    add_usage(tx, &console.usage, workspaces).await?;
    add_removed(tx, &console.removed, workspaces).await?;
    add_events(tx, &console.audit_log, workspaces).await
}

async fn add_users(
    tx: &Transaction<'_>,
    copied: &[CopiedUser],
    workspaces: &BTreeMap<i64, i64>,
) -> Result<(), PostgresError> {
    for CopiedUser { workspace, user, recovery_codes } in copied {
        let insert = "INSERT INTO member
                 (workspace, email, role, password_hash, totp_secret, totp_last_step, created_at, last_seen_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING rowid";
        let totp = user.totp.as_ref();
        let (secret, step) = (totp.map(|totp| &totp.secret), totp.map_or(0, |totp| bigint(totp.last_step)));
        let (workspace, email) = (target_rowid(workspaces, *workspace)?, user.email.as_str());
        let (created, seen) = (at(user.created_at), user.last_seen_at.map(at));
        let (role, hash) = (user.role.as_str(), &user.password_hash);
        let values: [Parameter<'_>; 8] = [&workspace, &email, &role, hash, &secret, &step, &created, &seen];
        let rowid: i64 = tx.query_one(insert, &values).await?.get(0);
        let digests: Vec<_> = recovery_codes.iter().map(<[u8; 32]>::as_slice).collect();
        let insert =
            "INSERT INTO member_recovery_code (member, digest) SELECT $1, d FROM unnest($2::bytea[]) AS d";
        tx.execute(insert, &[&rowid, &digests]).await?;
    }
    Ok(())
}

/// Adds the usage.
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
    let insert = "INSERT INTO usage_day (workspace, day, key, outcome, lookups, credits)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])";
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
        let insert = "INSERT INTO removed_spends (workspace, key, lookups, credits) VALUES ($1, $2, $3, $4)";
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
    let addresses: Vec<_> =
        copied.iter().map(|(_, event)| event.address.map(|address| address.to_string())).collect();
    let insert = "INSERT INTO audit_event (workspace, at, actor, action, subject, address)
         SELECT i.workspace, i.at, i.actor, i.action, i.subject, i.address
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
             WITH ORDINALITY AS i (workspace, at, actor, action, subject, address, n)
         ORDER BY i.n";
    tx.execute(insert, &[&of, &times, &actors, &actions, &subjects, &addresses]).await?;
    Ok(())
}
