//! `enrich people`: the people directory.

mod import;
mod input;
mod opt_outs;
mod rejects;

use enrich_store::PeopleStats;
use serde_json::json;

use crate::args::PeopleCommand;
use crate::directory::Directory;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::settings::PeopleLocation;

/// Runs a command. A match below `confidence_min` is not trusted.
pub fn run(
    location: PeopleLocation,
    confidence_min: f64,
    command: PeopleCommand,
    format: Format,
) -> Result<(), Failure> {
    match command {
        PeopleCommand::Import(args) => import::import(|| Directory::create(location), args, format),
        PeopleCommand::OptOut(args) => opt_outs::run(|| Directory::open(location), &args, format),
        PeopleCommand::Stats => stats(Directory::open(location)?.stats(confidence_min)?, format),
    }
}

fn stats(stats: PeopleStats, format: Format) -> Result<(), Failure> {
    let PeopleStats { people, untrusted, opt_outs } = stats;
    if format.json {
        return output::json(&json!({ "people": people, "untrusted": untrusted, "opt_outs": opt_outs }));
    }
    output::table(["PEOPLE", "UNTRUSTED", "OPT-OUTS"], [[people, untrusted, opt_outs].map(output::grouped)])
}
