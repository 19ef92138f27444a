//! `enrich people`: the people directory.
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - `input`: the bytes of the file to import
//! - `rejects`: the list of rejected rows
//! - `import`: `enrich people import`
//! - this module: the other commands

mod import;
mod input;
mod rejects;

use std::path::PathBuf;

use enrich_host::SystemArrivals;
use enrich_lib::email::Email;
use enrich_sqlite::{DataDir, People, Stats};
use serde_json::json;

use crate::args::{Format, PeopleCommand};
use crate::failure::Failure;
use crate::output;

pub fn run(data: PathBuf, command: PeopleCommand) -> Result<(), Failure> {
    match command {
        PeopleCommand::Import(args) => import::import(&open(&DataDir::create(data)?)?, args),
        PeopleCommand::Suppress { email, format } => suppress(&open(&DataDir::open(data)?)?, &email, format),
        PeopleCommand::Stats { format } => stats(open(&DataDir::open(data)?)?.stats()?, format),
    }
}

fn open(dir: &DataDir) -> Result<People, Failure> {
    Ok(People::open(dir, People::CONFIDENCE_MIN, rand::random())?)
}

fn suppress(people: &People, email: &str, format: Format) -> Result<(), Failure> {
    let email = Email::parse(email.trim()).map_err(|error| Failure::usage(error.to_string()))?;
    people.suppress(&email, SystemArrivals::now())?;
    if format.json {
        return output::json(&json!({ "suppressed": true }));
    }
    output::line(
        "suppressed: lookups stop finding this person within a second, and imports do not change that",
    )
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
