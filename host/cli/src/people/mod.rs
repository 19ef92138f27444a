//! `enrich people`: the people directory.
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - `input`: the bytes of the file to import
//! - `rejects`: the list of rejected rows
//! - `import`: `enrich people import`
//! - `opt_outs`: `enrich people opt-out`
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

use crate::args::PeopleCommand;
use crate::directory::Directory;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::url::ServerUrl;

/// Runs a command on the people directory in `data`. Nodes share the opt-outs in `database`.
pub fn run(
    data: PathBuf,
    database: Option<&ServerUrl>,
    command: PeopleCommand,
    format: Format,
) -> Result<(), Failure> {
    match command {
        PeopleCommand::Import(args) => import::import(|| Directory::create(data, database), args, format),
        PeopleCommand::Publish(args) => snapshot::publish(data, &args, format),
        PeopleCommand::Fetch(args) => snapshot::fetch(&data, database, &args, format),
        PeopleCommand::OptOut(args) => opt_outs::run(|| Directory::open(data, database), &args, format),
        PeopleCommand::Stats => stats(Directory::open(data, database)?.stats()?, format),
    }
}

fn stats(stats: Stats, format: Format) -> Result<(), Failure> {
    let Stats { people, untrusted, opt_outs } = stats;
    if format.json {
        return output::json(&json!({ "people": people, "untrusted": untrusted, "opt_outs": opt_outs }));
    }
    output::table(["PEOPLE", "UNTRUSTED", "OPT-OUTS"], [[people, untrusted, opt_outs].map(output::grouped)])
}
