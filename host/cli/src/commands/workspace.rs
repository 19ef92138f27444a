//! `enrich workspace`

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::Actor;
use enrich_store::records::WorkspaceRow;
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};
use serde_json::{Value, json};

use super::credits;
use crate::accounts::StoreLocation;
use crate::args::{WorkspaceCommand, WorkspaceSettings};
use crate::failure::Failure;
use crate::output::{self, Format};

pub fn run(store: StoreLocation, command: WorkspaceCommand, format: Format) -> Result<(), Failure> {
    match command {
        WorkspaceCommand::Create { name, credits, limit, window } => {
            let quota = Quota::new(limit, window).map_err(|error| Failure::usage(error.to_string()))?;
            create(store, name, quota, credits, format)
        }
        WorkspaceCommand::List => list(&store.open()?.run(async |admin| admin.workspaces().await)?, format),
        WorkspaceCommand::Set { name, settings } => {
            change_workspace(store, &name, &changes(&settings), describe, format)
        }
        WorkspaceCommand::Delete { yes: false, .. } => Err(Failure::usage(
            "a deleted workspace cannot be restored; add --yes to delete it, or use `enrich workspace set NAME --suspend`",
        )),
        WorkspaceCommand::Delete { name, yes: true } => {
            let text = format!("deleted {name}; requests with its keys are refused within a second");
            change_workspace(store, &name, &[WorkspaceChange::Deleted], |_| text, format)
        }
    }
}

fn changes(settings: &WorkspaceSettings) -> Vec<WorkspaceChange<'_>> {
    let WorkspaceSettings { display_name, limit, window, low_balance, suspend, resume } = settings;
    let is_quota = limit.is_some() || window.is_some();
    let quota = is_quota.then_some(WorkspaceChange::Quota { limit: *limit, window_seconds: *window });
    let display_name = display_name.as_deref();
    let display_name =
        display_name.map(|name| WorkspaceChange::DisplayName(Some(name).filter(|name| !name.is_empty())));
    let suspended = (*suspend || *resume).then_some(WorkspaceChange::Suspended(*suspend));
    let low_balance = low_balance.map(WorkspaceChange::LowBalance);
    [quota, display_name, low_balance, suspended].into_iter().flatten().collect()
}

/// Describes a changed workspace on one line.
fn describe(row: &WorkspaceRow) -> String {
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, .. } = &row.properties;
    let warning = match low_balance {
        0 => "no warning".to_owned(),
        credits => format!("a warning below {}", output::counted(*credits, "credit")),
    };
    let mut text = format!("{}: {}, {warning}", row.id, requests(*quota));
    if let Some(display_name) = display_name {
        text += &format!(", displayed as {display_name}");
    }
    if suspended_at.is_some() {
        text += ", suspended: requests with its keys are refused within a second";
    }
    text
}

/// Changes a workspace, and prints `text` or the new row as JSON.
fn change_workspace(
    store: StoreLocation,
    name: &WorkspaceId,
    changes: &[WorkspaceChange<'_>],
    text: impl FnOnce(&WorkspaceRow) -> String,
    format: Format,
) -> Result<(), Failure> {
    let actor = Actor::operator(SystemArrivals::now());
    let row = store.open()?.run(async |admin| admin.change_workspace(name, changes, &actor).await)?;
    if format.json { output::json(&to_json(&row)) } else { output::line(text(&row)) }
}

/// Formats a quota: `500 requests per 60 s`.
fn requests(quota: Quota) -> String {
    format!("{} per {} s", output::counted(quota.limit().into(), "request"), quota.window_seconds())
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
        let properties = WorkspaceProperties::new(quota);
        return output::json(&to_json(&WorkspaceRow { id: name, properties, balance, created_at }));
    }
    output::line(format!(
        "created workspace {name}: {} credits, {}",
        output::grouped(credits),
        requests(quota),
    ))?;
    output::remark(format!("create an API key with `enrich key create {name} LABEL`"));
    Ok(())
}

fn list(workspaces: &[WorkspaceRow], format: Format) -> Result<(), Failure> {
    if format.json {
        return output::json(&workspaces.iter().map(to_json).collect::<Vec<_>>());
    }
    let rows = workspaces.iter().map(|row| {
        let WorkspaceProperties { quota, display_name, .. } = &row.properties;
        let limit = format!("{} per {} s", output::grouped(quota.limit().into()), quota.window_seconds());
        let Balance { available, held, spent, .. } = row.balance;
        let [available, held, spent] = [available, held, spent].map(output::grouped);
        let state = row.properties.state().as_str().to_owned();
        let created = output::second(row.created_at);
        let display_name = display_name.clone().unwrap_or_default();
        [row.id.to_string(), state, limit, available, held, spent, created, display_name]
    });
    output::table(["NAME", "STATE", "LIMIT", "AVAILABLE", "HELD", "SPENT", "CREATED", "DISPLAY NAME"], rows)
}

fn to_json(row: &WorkspaceRow) -> Value {
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } = &row.properties;
    json!({
        "name": row.id.as_str(),
        "display_name": display_name,
        "state": row.properties.state().as_str(),
        "limit": quota.limit(),
        "window_seconds": quota.window_seconds(),
        "low_balance": low_balance,
        "created_at": output::rfc3339(row.created_at),
        "suspended_at": suspended_at.map(output::rfc3339),
        "deleted_at": deleted_at.map(output::rfc3339),
        "credits": credits::to_json(&row.balance),
    })
}
