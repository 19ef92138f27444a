//! `enrich backup` and `enrich restore`: copies of the data directory.

use std::path::Path;
use std::time::Instant;

use enrich_sqlite::{BackupFile, DataDir, SqliteError};
use indicatif::HumanBytes;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Format};

/// Copies the data directory to a backup.
pub fn back_up(data: &Path, backup: &Path, format: Format) -> Result<(), Failure> {
    let started = Instant::now();
    let files = DataDir::open(data)?.copy_to(backup)?;
    show("backed up", &files, backup, started, format)
}

/// Copies a backup to a new data directory.
pub fn restore(backup: &Path, data: &Path, format: Format) -> Result<(), Failure> {
    let started = Instant::now();
    let dir = DataDir::open(backup).map_err(|error| match error {
        SqliteError::NoData(_) => Failure::new(error.to_string())
            .advise("name the directory of a backup, which `enrich backup` creates"),
        error => error.into(),
    })?;
    let files = dir.copy_to(data).map_err(|error| match error {
        SqliteError::NotEmpty(_) => {
            let what = format!("{} contains files, which a restoration does not replace", data.display());
            Failure::new(what).advise(
                "stop the server and move the directory away, or choose another one with --data or ENRICH_DATA",
            )
        }
        SqliteError::Damaged { path, error } => {
            Failure::new(format!("{} is damaged: {error}", path.display())).advise("restore another backup")
        }
        error => error.into(),
    })?;
    show("restored", &files, data, started, format)
}

fn show(
    done: &str,
    files: &[BackupFile],
    target: &Path,
    started: Instant,
    format: Format,
) -> Result<(), Failure> {
    if format.json {
        let files = files.iter().map(|file| json!({ "name": file.name, "bytes": file.bytes }));
        return output::json(&json!({
            "directory": target.display().to_string(),
            "files": files.collect::<Vec<_>>(),
        }));
    }
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    let bytes = HumanBytes(files.iter().map(|file| file.bytes).sum());
    output::line(format!(
        "{done} {} to {} ({bytes}) in {:.1} s",
        names.join(", "),
        target.display(),
        started.elapsed().as_secs_f64(),
    ))
}
