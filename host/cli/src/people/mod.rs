//! `enrich people`: the people directory.
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - `input`: the bytes of the file to import
//! - `rejects`: the list of rejected rows
//! - `import`: `enrich people import`
//! - `opt_outs`: `enrich people suppress`, `unsuppress` and `suppressed`
//! - `snapshot`: `enrich people publish` and `fetch`
//! - this module: the other commands

mod import;
mod input;
mod opt_outs;
mod rejects;
mod snapshot;

use std::path::PathBuf;

use enrich_sqlite::Stats;
use serde_json::json;

use crate::args::{Format, PeopleCommand};
use crate::directory::Directory;
use crate::failure::Failure;
use crate::output;
use crate::url::ServerUrl;

/// Runs a command on the people directory in `data`. Nodes share the opt-outs in `database`.
pub fn run(data: PathBuf, database: Option<&ServerUrl>, command: PeopleCommand) -> Result<(), Failure> {
    let open = |data| Directory::open(data, database);
    match command {
        PeopleCommand::Import(args) => import::import(|| Directory::create(data, database), args),
        PeopleCommand::Publish(args) => snapshot::publish(data, &args),
        PeopleCommand::Fetch(args) => snapshot::fetch(&data, database, &args),
        PeopleCommand::Suppress(args) => opt_outs::suppress(|| open(data), &args),
        PeopleCommand::Unsuppress(args) => opt_outs::unsuppress(|| open(data), &args),
        PeopleCommand::Suppressed { email, format } => opt_outs::show(|| open(data), &email, format),
        PeopleCommand::Stats { format } => stats(open(data)?.stats()?, format),
    }
}

fn stats(stats: Stats, format: Format) -> Result<(), Failure> {
    let Stats { people, untrusted, suppressed } = stats;
    if format.json {
        return output::json(&json!({ "people": people, "untrusted": untrusted, "suppressed": suppressed }));
    }
    output::table(
        ["PEOPLE", "UNTRUSTED", "SUPPRESSED"],
        [[people, untrusted, suppressed].map(output::grouped)],
    )
}
