//! `enrich check`: verifies the database files and the balances.

use enrich_sqlite::{DataDir, FileCheck};
use enrich_store::records::{Audit, AuditRow, Tally};
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::settings::SharedSettings;

/// Verifies the balances, and the files of the data directory with the accounts.
pub fn run(settings: &SharedSettings, format: Format) -> Result<(), Failure> {
    let store = settings.accounts()?;
    let files = match &store {
        StoreLocation::Server(_) => Vec::new(),
        StoreLocation::Dir(data) => DataDir::open(data)?.check_files()?,
    };
    let are_intact = files.iter().all(|file| file.errors.is_empty());
    let location = store.to_string();
    // An audit of a damaged file would fail or be wrong.
    let audit =
        are_intact.then(|| store.open_to_read()?.run(async |admin| admin.audit().await)).transpose()?;
    if format.json {
        output::json(&json!({
            "files": files.iter().map(|file| json!({ "name": name(file), "errors": file.errors })).collect::<Vec<_>>(),
            "credits": audit.as_ref().map(audit_to_json),
        }))?;
    } else {
        show(&files, audit.as_ref())?;
    }
    if !are_intact {
        return Err(Failure::new(format!("the files in {} have errors", settings.data().display())).advise(
            "stop the server, keep a copy of the directory, and restore a backup with `enrich restore`",
        ));
    }
    if audit.is_none_or(|audit| audit.reconciles()) {
        return Ok(());
    }
    Err(Failure::new(format!("the balances in {location} do not reconcile with their rows"))
        .advise("stop the server, keep a copy of the accounts, and restore a backup that reconciles"))
}

fn show(files: &[FileCheck], audit: Option<&Audit>) -> Result<(), Failure> {
    for file in files {
        if file.errors.is_empty() {
            output::line(format!("{}: no errors", name(file)))?;
        }
        for error in &file.errors {
            output::line(format!("{}: {error}", name(file)))?;
        }
    }
    audit.map_or(Ok(()), report)
}

fn audit_to_json(audit: &Audit) -> Value {
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
fn report(audit: &Audit) -> Result<(), Failure> {
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

fn figures(row: &AuditRow) -> [(&'static str, Tally); 2] {
    [("granted", row.granted), ("spent", row.spent)]
}

fn name(file: &FileCheck) -> String {
    file.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
