//! `enrich`: the command line of the person enrichment service.
//!
//! Each command group has its own module: `serve`, `workspace`, `key`, `credits`, `copy`, `people`, `vendors`, `config`,
//! `lookup`, `bulk`. They share these modules:
//!
//! - `args`: command line arguments
//! - `help`: long help texts
//! - `accounts`: access to workspaces, keys and credits; also `enrich migrate`
//! - `config`: the settings file of `serve`
//! - `client`: the HTTP client of `lookup` and `bulk`
//! - `sample`: the sample data
//! - `output`, `failure`: results and errors
//! - `panics`: reports of panics, without their messages
//! - `signals`: SIGINT and SIGTERM
//! - `private_file`: files with personal data
//! - `url`: URLs that may contain a password

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "nothing in a binary is public")]

mod accounts;
mod args;
mod bulk;
mod client;
mod config;
mod copy;
mod credits;
mod failure;
mod help;
mod key;
mod lookup;
mod output;
mod panics;
mod people;
mod private_file;
mod sample;
mod serve;
mod signals;
mod sources;
mod url;
mod vendors;
mod workspace;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::accounts::Place;
use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::serve::Given;

/// The allocator. A lookup makes dozens of small allocations, for which the system's allocator is a few times slower.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    panics::hide_messages();
    let matches = match Args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_parsed(&error),
    };
    // Flags take precedence over environment variables.
    let is_dir_typed = matches.value_source("data") == Some(ValueSource::CommandLine);
    let is_database_typed = matches.value_source("database") == Some(ValueSource::CommandLine);
    let ran = Args::from_arg_matches(&matches)
        .map_err(|error| error.exit())
        .and_then(|args| run(args, is_dir_typed, is_database_typed));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure, is_json(&matches));
            failure.exit.into()
        }
    }
}

/// Prints the help, the version or a mistake in the arguments, and returns the exit code.
fn not_parsed(error: &clap::Error) -> ExitCode {
    let is_json = error.use_stderr() && std::env::args_os().any(|arg| arg == "--json");
    let failure = if is_json {
        let text = error.render().to_string();
        let (what, advice) = text.split_once("\n\n").unwrap_or((&text, ""));
        Failure::usage(what.trim_start_matches("error: ")).advise(advice.trim())
    } else if error.use_stderr() {
        error.exit()
    } else {
        match output::unless_closed(error.print()) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(failure) => failure,
        }
    };
    output::error(&failure, is_json);
    failure.exit.into()
}

/// Returns whether the command has the flag `--json`.
fn is_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, matches)) => is_json(matches),
        None => matches.try_get_one("json").is_ok_and(|flag| flag == Some(&true)),
    }
}

fn run(args: Args, is_dir_typed: bool, is_database_typed: bool) -> Result<(), Failure> {
    let Args { data, database, command } = args;
    let dir = data.clone().unwrap_or_else(|| Args::DATA.into());
    let place = || match &database {
        Some(_) if is_dir_typed && is_database_typed => Err(Failure::usage(
            "the accounts are in one place: either in the directory of --data or at the URL of --database",
        )),
        Some(url) if !is_dir_typed => Ok(Place::Server(url.clone())),
        _ => Ok(Place::Dir(dir.clone())),
    };
    match command {
        Command::Serve(args) => serve::run(Given { data, database, args }),
        Command::Workspace { command } => workspace::run(place()?, command),
        Command::Key { command } => key::run(place()?, command),
        Command::Credits { command } => credits::run(place()?, command),
        Command::Migrate { format } => accounts::migrate(place()?, format),
        Command::Copy(args) => copy::run(args),
        Command::People { command } => people::run(dir, command),
        Command::Vendors { command } => vendors::run(data, database, command),
        Command::Config { command } => config::command::run(data, database, command),
        Command::Lookup(args) => lookup::run(&args),
        Command::Bulk(args) => bulk::run(&args),
    }
}
