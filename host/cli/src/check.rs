//! `enrich check`: verifies the database files and the credits.

use std::path::PathBuf;

use enrich_sqlite::{Admin, DataDir, FileCheck};
use enrich_store::records::Audit;
use serde_json::json;

use crate::args::Format;
use crate::credits;
use crate::failure::Failure;
use crate::output;

pub fn run(data: PathBuf, format: Format) -> Result<(), Failure> {
    let dir = DataDir::open(data)?;
    let files = dir.check_files()?;
    let are_intact = files.iter().all(|file| file.errors.is_empty());
    // An audit of a damaged file would fail or be wrong, and an audit of missing accounts would create them.
    let has_accounts = files.iter().any(|file| name(file) == "accounts.db");
    let audit = if are_intact && has_accounts { Some(Admin::open(&dir)?.audit()?) } else { None };
    if format.json {
        output::json(&json!({
            "files": files.iter().map(|file| json!({ "name": name(file), "errors": file.errors })).collect::<Vec<_>>(),
            "credits": audit.as_ref().map(credits::audit_to_json),
        }))?;
    } else {
        show(&files, audit.as_ref())?;
    }
    if are_intact && audit.is_none_or(|audit| audit.reconciles()) {
        return Ok(());
    }
    Err(Failure::new(format!("the data in {} has errors", dir.path().display()))
        .advise("stop the server, keep a copy of the directory, and restore a backup with `enrich restore`"))
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
    audit.map_or(Ok(()), credits::report)
}

fn name(file: &FileCheck) -> String {
    file.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
