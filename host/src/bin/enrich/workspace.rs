//! `enrich workspace`

use std::path::PathBuf;

use enrich_host::SystemArrivals;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_sqlite::{Admin, DataDir, WorkspaceRow};
use serde_json::json;

use crate::args::{Format, WorkspaceCommand};
use crate::failure::Failure;
use crate::{admin, output};

pub fn run(data: PathBuf, command: WorkspaceCommand) -> Result<(), Failure> {
    match command {
        WorkspaceCommand::Create { name, credits, limit, window } => {
            let quota = Quota::new(limit, window).map_err(|fault| Failure::new(fault.to_string()))?;
            create(data, &name, quota, credits)
        }
        WorkspaceCommand::List { format } => list(&admin(data)?.workspaces()?, format),
    }
}

/// The one command that makes a data directory.
fn create(data: PathBuf, name: &WorkspaceId, quota: Quota, credits: u64) -> Result<(), Failure> {
    Admin::open(&DataDir::create(data)?)?.create_workspace(name, quota, credits, SystemArrivals::now())?;
    output::line(format!(
        "created workspace {name}: {} credits, {} requests per {} s",
        output::grouped(credits),
        output::grouped(quota.limit().into()),
        quota.window_seconds(),
    ));
    output::remark(format!("`enrich key create {name} LABEL` makes an API key for it"));
    Ok(())
}

fn list(workspaces: &[WorkspaceRow], format: Format) -> Result<(), Failure> {
    if format.json {
        let rows = workspaces.iter().map(|row| {
            json!({
                "name": row.id.as_str(),
                "limit": row.quota.limit(),
                "window_seconds": row.quota.window_seconds(),
                "created_at": output::rfc3339(row.created_at),
                "credits": crate::credits::to_json(&row.balance),
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let rows = workspaces.iter().map(|row| {
        let limit =
            format!("{} per {} s", output::grouped(row.quota.limit().into()), row.quota.window_seconds());
        let [available, held] = [row.balance.available, row.balance.held].map(output::grouped);
        [row.id.to_string(), limit, available, held, output::rfc3339(row.created_at)]
    });
    output::table(["NAME", "LIMIT", "AVAILABLE", "HELD", "CREATED"], rows);
    Ok(())
}
