//! `enrich people publish` and `fetch`: the same people on several nodes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use enrich_host::SystemArrivals;
use enrich_sqlite::{DataDir, Fetched, Published};
use indicatif::HumanBytes;
use serde_json::json;

use crate::args::{FetchArgs, SnapshotArgs};
use crate::directory::{Directory, check_has_key};
use crate::failure::Failure;
use crate::output::{self, Format, grouped};
use crate::url::ServerUrl;

pub fn publish(data: PathBuf, args: &SnapshotArgs, format: Format) -> Result<(), Failure> {
    let started = Instant::now();
    // The opt-outs in a database need not be known: each node applies them to what it fetches.
    let directory = Directory::open(data, None)?;
    let Published { people, bytes } = directory.people.publish(&args.file, SystemArrivals::now())?;
    if format.json {
        return output::json(&json!({ "people": people, "bytes": bytes }));
    }
    output::line(format!(
        "published {} to {} ({}) in {:.1} s",
        output::people(people),
        args.file.display(),
        HumanBytes(bytes),
        started.elapsed().as_secs_f64(),
    ))
}

pub fn fetch(
    data: &Path,
    database: Option<&ServerUrl>,
    args: &FetchArgs,
    format: Format,
) -> Result<(), Failure> {
    let started = Instant::now();
    let FetchArgs { snapshot: args, people_key } = args;
    let new_key = people_key.as_ref().filter(|_| !DataDir::has_people_key(data));
    if new_key.is_none() {
        check_has_key(data)?;
    }
    // Before a directory is created for it.
    File::open(&args.file).map_err(|error| Failure::file("read", &args.file, error))?;
    if let Some(file) = new_key {
        install_key(data, file)?;
    }
    let directory = Directory::create(data.to_owned(), database)?;
    let Fetched { people, changed, removed } = directory.people.fetch(&args.file)?;
    if format.json {
        return output::json(&json!({ "people": people, "changed": changed, "removed": removed }));
    }
    output::line(format!(
        "fetched {} from {} in {:.1} s: {} new or changed, {} removed",
        output::people(people),
        args.file.display(),
        started.elapsed().as_secs_f64(),
        grouped(changed),
        grouped(removed),
    ))
}

/// Copies the key of other nodes to a data directory without one, which is created if it is missing.
fn install_key(data: &Path, file: &Path) -> Result<(), Failure> {
    let key = fs::read(file).map_err(|error| Failure::file("read", file, error))?;
    let key = key.try_into().map_err(|_| {
        Failure::new(format!("{} is not a people.key", file.display()))
            .advise("copy the file people.key from the data directory of another node")
    })?;
    Ok(DataDir::create(data)?.install_people_key(key)?)
}
