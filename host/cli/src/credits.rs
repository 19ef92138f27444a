//! `enrich credits`

use std::time::Duration;

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use enrich_store::records::{Audit, AuditRow, GrantRow, Refund, Tally};
use enrich_store::usage::Day;
use enrich_store::{Accounts, Actor, StoreError};
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::args::{CreditsCommand, Format};
use crate::failure::Failure;
use crate::{date, output};

pub fn run(store: StoreLocation, command: CreditsCommand) -> Result<(), Failure> {
    match command {
        CreditsCommand::Grant { workspace, credits, format } => {
            let now = SystemArrivals::now();
            let balance = store.open()?.run(async |admin| admin.grant(&workspace, credits, now).await)?;
            show(&balance, format)
                .map_err(|failure| failure.advise("the credits were granted; do not grant them again"))
        }
        CreditsCommand::Adjust { workspace, credits, reason, format } => {
            let actor = Actor::operator(SystemArrivals::now());
            let adjusted =
                async |admin: &mut dyn Accounts| admin.adjust(&workspace, credits, &reason, &actor).await;
            show(&store.open()?.run(adjusted)?, format)
                .map_err(|failure| failure.advise("the credits were adjusted; do not adjust them again"))
        }
        CreditsCommand::Refund { lookup_id, reason, format } => {
            let (actor, reason) = (Actor::operator(SystemArrivals::now()), reason.unwrap_or_default());
            let refund = store.open()?.block_on(async |admin| {
                admin.refund(lookup_id, &reason, &actor).await.map_err(refund_error)
            })?;
            let Refund { workspace, credits, balance } = refund;
            if format.json {
                return output::json(&json!({
                    "workspace": workspace.as_str(),
                    "refunded": credits,
                    "credits": to_json(&balance),
                }));
            }
            output::line(format!(
                "refunded {} to {workspace}, which has {} available",
                output::counted(credits, "credit"),
                output::grouped(balance.available),
            ))
        }
        CreditsCommand::History { workspace, format } => {
            history(&store.open()?.run(async |admin| admin.grants(&workspace).await)?, format)
        }
        CreditsCommand::Prune { older_than, format } => prune(store, older_than, format),
        CreditsCommand::Show { workspace, format } => {
            show(&store.open()?.run(async |admin| admin.balance(&workspace).await)?, format)
        }
        CreditsCommand::Audit { format } => {
            audit(&store.open()?.run(async |admin| admin.audit().await)?, format)
        }
    }
}

/// The minimum age of removed spends. A spend is never repeated after a day.
const PRUNED_AGE_MIN: Duration = Duration::from_secs(86_400);

fn prune(store: StoreLocation, older_than: Duration, format: Format) -> Result<(), Failure> {
    if older_than < PRUNED_AGE_MIN {
        return Err(Failure::usage("spends of the last day are kept; use --older-than 1d or more"));
    }
    let before = Day::of(SystemArrivals::now() - older_than);
    let removed = store.open()?.run(async |admin| enrich_node::remove_spends(admin, before).await)?;
    let day = date::format(before);
    if format.json {
        return output::json(&json!({ "removed": removed, "before": day }));
    }
    output::line(format!("removed {} from before {day}", output::counted(removed, "spend")))
}

fn show(balance: &Balance, format: Format) -> Result<(), Failure> {
    if format.json {
        return output::json(&to_json(balance));
    }
    let Balance { granted, available, held, spent } = *balance;
    output::table(
        ["GRANTED", "AVAILABLE", "HELD", "SPENT"],
        [[granted, available, held, spent].map(output::grouped)],
    )
}

pub fn to_json(balance: &Balance) -> Value {
    let Balance { granted, available, held, spent } = balance;
    json!({ "granted": granted, "available": available, "held": held, "spent": spent })
}

/// Adds the time to the error of a second refund.
fn refund_error(error: StoreError) -> Failure {
    match error {
        StoreError::AlreadyRefunded { at, .. } => Failure::new(format!("{error} at {}", output::second(at))),
        error => error.into(),
    }
}

fn history(grants: &[GrantRow], format: Format) -> Result<(), Failure> {
    if format.json {
        let rows = grants.iter().map(|GrantRow { kind, credits, reason, at }| {
            json!({
                "at": output::rfc3339(*at),
                "kind": kind.as_str(),
                "credits": credits,
                "lookup_id": kind.lookup_id().map(|lookup_id| lookup_id.to_string()),
                "reason": reason,
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let rows = grants.iter().map(|GrantRow { kind, credits, reason, at }| {
        let sign = if *credits < 0 { "-" } else { "" };
        let credits = format!("{sign}{}", output::grouped(credits.unsigned_abs()));
        let lookup_id = kind.lookup_id().map_or_else(|| "-".to_owned(), |lookup_id| lookup_id.to_string());
        [output::second(*at), kind.as_str().to_owned(), credits, lookup_id, reason.clone()]
    });
    output::table(["AT", "KIND", "CREDITS", "LOOKUP", "REASON"], rows)
}

/// Prints the audit: as JSON with every workspace, or as a table with the workspaces that do not reconcile. Fails if the
/// audit does not reconcile.
fn audit(audit: &Audit, format: Format) -> Result<(), Failure> {
    if format.json {
        output::json(&audit_to_json(audit))?;
    } else {
        report(audit)?;
    }
    if audit.reconciles() {
        return Ok(());
    }
    Err(Failure::new("the balances do not reconcile with their rows")
        .advise("stop the server, keep a copy of the store, and restore a backup that reconciles"))
}

pub fn audit_to_json(audit: &Audit) -> Value {
    let rows = audit.workspaces.iter().map(|row| {
        let mut value = json!({ "name": row.id.as_str(), "reconciles": row.reconciles() });
        for (name, Tally { total, rows }) in figures(row) {
            value[name] = json!({ "total": total, "rows": rows });
        }
        value
    });
    json!({
        "reconciles": audit.reconciles(),
        "workspaces": rows.collect::<Vec<_>>(),
        "errors": audit.errors,
    })
}

/// Prints the workspaces that do not reconcile, the errors and a summary.
pub fn report(audit: &Audit) -> Result<(), Failure> {
    let differing: Vec<_> = audit.workspaces.iter().filter(|row| !row.reconciles()).collect();
    if !differing.is_empty() {
        let cells = differing.iter().flat_map(|row| {
            figures(row).map(|(name, Tally { total, rows })| {
                [row.id.to_string(), name.to_owned(), output::grouped(total), output::grouped(rows)]
            })
        });
        output::table(["WORKSPACE", "", "TOTAL", "ROWS"], cells)?;
    }
    audit.errors.iter().try_for_each(output::line)?;
    output::line(format!(
        "{} of {} workspaces reconcile with their rows",
        output::grouped((audit.workspaces.len() - differing.len()) as u64),
        output::grouped(audit.workspaces.len() as u64),
    ))
}

fn figures(row: &AuditRow) -> [(&'static str, Tally); 3] {
    [("granted", row.granted), ("spent", row.spent), ("leased", row.leased)]
}
