//! `enrich workspace`

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::records::WorkspaceRow;
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::args::{Format, WorkspaceCommand};
use crate::failure::Failure;
use crate::output;

pub fn run(store: StoreLocation, command: WorkspaceCommand) -> Result<(), Failure> {
    match command {
        WorkspaceCommand::Create { name, credits, limit, window, format } => {
            let quota = Quota::new(limit, window).map_err(|error| Failure::usage(error.to_string()))?;
            create(store, name, quota, credits, format)
        }
        WorkspaceCommand::List { format } => {
            list(&store.open()?.run(async |admin| admin.workspaces().await)?, format)
        }
    }
}

/// Creates a workspace, and the data directory if it is missing.
fn create(
    store: StoreLocation,
    name: WorkspaceId,
    quota: Quota,
    credits: u64,
    format: Format,
) -> Result<(), Failure> {
    let created_at = SystemArrivals::now();
    let mut accounts = store.create()?;
    accounts.run(async |admin| admin.create_workspace(&name, quota, credits, created_at).await)?;
    if format.json {
        let balance = Balance { granted: credits, available: credits, held: 0, spent: 0 };
        return output::json(&to_json(&WorkspaceRow { id: name, quota, balance, created_at }));
    }
    output::line(format!(
        "created workspace {name}: {} credits, {} requests per {} s",
        output::grouped(credits),
        output::grouped(quota.limit().into()),
        quota.window_seconds(),
    ))?;
    output::remark(format!("create an API key with `enrich key create {name} LABEL`"));
    Ok(())
}

fn list(workspaces: &[WorkspaceRow], format: Format) -> Result<(), Failure> {
    if format.json {
        return output::json(&workspaces.iter().map(to_json).collect::<Vec<_>>());
    }
    let rows = workspaces.iter().map(|row| {
        let limit =
            format!("{} per {} s", output::grouped(row.quota.limit().into()), row.quota.window_seconds());
        let [available, held] = [row.balance.available, row.balance.held].map(output::grouped);
        [row.id.to_string(), limit, available, held, output::rfc3339(row.created_at)]
    });
    output::table(["NAME", "LIMIT", "AVAILABLE", "HELD", "CREATED"], rows)
}

fn to_json(row: &WorkspaceRow) -> Value {
    json!({
        "name": row.id.as_str(),
        "limit": row.quota.limit(),
        "window_seconds": row.quota.window_seconds(),
        "created_at": output::rfc3339(row.created_at),
        "credits": crate::credits::to_json(&row.balance),
    })
}
