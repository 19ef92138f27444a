//! `enrich workspace`

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::Actor;
use enrich_store::records::WorkspaceRow;
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::args::{Format, WorkspaceArgs, WorkspaceCommand, WorkspaceSettings};
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
        WorkspaceCommand::Set { name, settings, format } => set(store, &name, &settings, format),
        WorkspaceCommand::Rename { name, display_name, format } => {
            let display_name = Some(display_name.as_str()).filter(|display_name| !display_name.is_empty());
            let change = WorkspaceChange::DisplayName(display_name);
            let text = match display_name {
                Some(display_name) => format!("{name} is displayed as {display_name}"),
                None => format!("{name} has no display name"),
            };
            change_workspace(store, &name, &[change], |_| text, format)
        }
        WorkspaceCommand::Suspend(WorkspaceArgs { name, format }) => {
            let text = format!("suspended {name}; requests with its keys are refused within a second");
            change_workspace(store, &name, &[WorkspaceChange::Suspended(true)], |_| text, format)
        }
        WorkspaceCommand::Resume(WorkspaceArgs { name, format }) => {
            let text = format!("resumed {name}");
            change_workspace(store, &name, &[WorkspaceChange::Suspended(false)], |_| text, format)
        }
        WorkspaceCommand::Delete { yes: false, .. } => Err(Failure::usage(
            "a deleted workspace cannot be restored; add --yes to delete it, or use `enrich workspace suspend`",
        )),
        WorkspaceCommand::Delete { workspace: WorkspaceArgs { name, format }, yes: true } => {
            let text = format!("deleted {name}; requests with its keys are refused within a second");
            change_workspace(store, &name, &[WorkspaceChange::Deleted], |_| text, format)
        }
    }
}

fn set(
    store: StoreLocation,
    name: &WorkspaceId,
    settings: &WorkspaceSettings,
    format: Format,
) -> Result<(), Failure> {
    let WorkspaceSettings { limit, window, low_balance } = *settings;
    let quota = (limit.is_some() || window.is_some())
        .then_some(WorkspaceChange::Quota { limit, window_seconds: window });
    let changes: Vec<_> = quota.into_iter().chain(low_balance.map(WorkspaceChange::LowBalance)).collect();
    if changes.is_empty() {
        return Err(Failure::usage("there is nothing to change; add --limit, --window or --low-balance"));
    }
    let text = |row: &WorkspaceRow| {
        let WorkspaceProperties { quota, low_balance, .. } = &row.properties;
        let warning = match low_balance {
            0 => "no warning".to_owned(),
            credits => format!("a warning below {}", output::counted(*credits, "credit")),
        };
        format!("{name}: {}, {warning}", requests(*quota))
    };
    change_workspace(store, name, &changes, text, format)
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
        let [available, held] = [row.balance.available, row.balance.held].map(output::grouped);
        let state = row.properties.state().as_str().to_owned();
        let created = output::rfc3339(row.created_at);
        let display_name = display_name.clone().unwrap_or_default();
        [row.id.to_string(), state, limit, available, held, created, display_name]
    });
    output::table(["NAME", "STATE", "LIMIT", "AVAILABLE", "HELD", "CREATED", "DISPLAY NAME"], rows)
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
        "credits": crate::credits::to_json(&row.balance),
    })
}
