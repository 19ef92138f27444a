//! `enrich credits`

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use enrich_store::records::Refund;
use enrich_store::{Actor, StoreError};
use serde_json::{Value, json};

use super::ledger;
use crate::accounts::StoreLocation;
use crate::args::{CreditsCommand, GrantArgs};
use crate::failure::Failure;
use crate::output::{self, Format};

pub fn run(store: StoreLocation, command: CreditsCommand, format: Format) -> Result<(), Failure> {
    match command {
        CreditsCommand::Grant(args) => show(&grant(store, &args)?, format).map_err(|failure| {
            failure.advise(match args.credits.get() {
                ..0 => "the credits were withdrawn; do not withdraw them again",
                _ => "the credits were granted; do not grant them again",
            })
        }),
        CreditsCommand::Refund { lookup_id, reason } => {
            let (actor, reason) = (Actor::operator(SystemArrivals::now()), reason.unwrap_or_default());
            let refund = store
                .open()?
                .run(async |admin| admin.refund(lookup_id, &reason, &actor).await.map_err(refund_error))?;
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
        CreditsCommand::Ledger(args) => ledger::run(store, &args, format),
    }
}

/// Grants or withdraws credits. Returns the new balance.
fn grant(store: StoreLocation, args: &GrantArgs) -> Result<Balance, Failure> {
    let GrantArgs { workspace, credits, reason } = args;
    let actor = Actor::operator(SystemArrivals::now());
    if reason.is_none() && credits.get() < 0 {
        return Err(Failure::usage("credits are withdrawn for a reason; add --reason"));
    }
    let if_made = format!("check `enrich credits ledger {workspace}` before you repeat the command");
    store.open()?.change(&if_made, async |admin| match reason {
        Some(reason) => admin.adjust(workspace, *credits, reason, &actor).await,
        None => admin.grant(workspace, credits.get().unsigned_abs(), actor.now).await,
    })
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
