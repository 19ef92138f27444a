//! `enrich`: the command line of the person enrichment service.
//!
//! Each command has its own module: `serve`, `health`, `config`, `vendors`, `copy`, `backup`, `check`, `workspace`, `key`, `credits`
//! with `ledger`, `usage`, `user`, `people`, `lookup`, `bulk`, `openapi`, `install`. They use these modules, each of which depends only
//! on those before it:
//!
//! - `failure`, `output`: errors and results
//! - `runtime`: the async runtime
//! - `panics`: reports of panics, without their messages
//! - `signals`: SIGINT and SIGTERM
//! - `private_file`: files with personal data
//! - `url`: URLs that may contain a password
//! - `listen`, `number`, `values`, `duration`, `console_url`: values that are both flags and settings
//! - `date`: days in UTC
//! - `args`: the command line
//! - `period`: the days of a report
//! - `accounts`: access to workspaces, keys, credits and users; also `enrich migrate`
//! - `directory`: access to people and opt-outs
//! - `settings`: the settings of `serve`, from its file, flags and the environment
//! - `client`: the HTTP client of `lookup` and `bulk`
//! - `sample`: the sample data of `serve`

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "only the command line is public")]

mod accounts;
mod args;
mod backup;
mod bulk;
mod check;
mod client;
mod config;
mod console_url;
mod copy;
mod credits;
mod date;
mod directory;
mod duration;
mod failure;
mod health;
mod install;
mod key;
mod ledger;
mod listen;
mod lookup;
mod number;
mod openapi;
mod output;
mod panics;
mod people;
mod period;
mod private_file;
mod runtime;
mod sample;
mod serve;
mod settings;
mod signals;
mod url;
mod usage;
mod user;
mod values;
mod vendors;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use crate::args::{Args, Command, ConfigArgs, DataArgs, StoreArgs};
use crate::failure::Failure;
use crate::output::Format;
use crate::settings::SharedSettings;
use crate::url::ServerUrl;

/// Returns the parser of the command line.
pub fn command() -> clap::Command {
    Args::grouped()
}

/// Runs the command in the arguments of this process, and returns its exit code.
pub fn main() -> ExitCode {
    panics::hide_messages();
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_parsed(&with_usage(error)),
    };
    let Args { json, command } = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(command, leaf(&matches), Format { json }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure, json);
            failure.exit.into()
        }
    }
}

/// Returns the matches of the innermost subcommand.
fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, matches)| leaf(matches))
}

/// Replaces the usage in an error by that of the command's help. Clap's own one lists the flags that have an environment variable.
fn with_usage(mut error: clap::Error) -> clap::Error {
    if error.get(ContextKind::Usage).is_some() {
        let mut command = command();
        command.build();
        let subcommand = |command: clap::Command, arg: OsString| match command.find_subcommand(&arg) {
            Some(subcommand) => subcommand.clone(),
            None => command,
        };
        let usage = std::env::args_os().skip(1).fold(command, subcommand).render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// Prints the help, the version or a mistake in the arguments, and returns the exit code.
fn not_parsed(error: &clap::Error) -> ExitCode {
    let is_json = error.use_stderr() && std::env::args_os().any(|arg| arg == "--json");
    let failure = if is_json {
        Failure::arguments(error)
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

/// Runs a command. `matches` shows which values are flags, which take precedence over environment variables.
fn run(command: Command, matches: &ArgMatches, format: Format) -> Result<(), Failure> {
    let is_flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    let settings = |store: StoreArgs| {
        let settings = SharedSettings::read(store)?;
        match (is_flag("data"), is_flag("database")) {
            (true, true) => Err(Failure::usage(
                "--data and --database exclude each other; the accounts are in one of them",
            )),
            // The flag takes precedence over a database in the environment or the file.
            (true, false) => Ok(settings.without_database()),
            _ => Ok(settings),
        }
    };
    let accounts = |store: StoreArgs| settings(store)?.accounts();
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Health(args) => health::run(&args, format),
        Command::Config { command } => config::run(command, format),
        Command::Vendors { command } => vendors::run(command, format),
        Command::Migrate(args) => {
            accounts::migrate(&database(args.database.clone(), args.file.clone())?, &args, format)
        }
        Command::Copy(args) => copy::run(args.from, database(args.to, args.file)?, format),
        Command::Backup(args) => backup::back_up(&data(args.data)?, &args.backup, format),
        Command::Restore(args) => backup::restore(&args.backup, &data(args.data)?, format),
        Command::Check { store: args } => check::run(&settings(args)?, format),
        Command::Workspace { store: args, command } => workspace::run(accounts(args)?, command, format),
        Command::Key { store: args, command } => key::run(accounts(args)?, command, format),
        Command::Credits { store: args, command } => credits::run(accounts(args)?, command, format),
        Command::Usage { store: location, args } => usage::run(accounts(location)?, &args, format),
        Command::User { store: args, command } => {
            let settings = settings(args)?;
            user::run(settings.accounts()?, || settings.console_url(), command, format)
        }
        Command::People { args, command } => {
            let settings = SharedSettings::read(StoreArgs { data: args.data, database: args.database })?;
            let database = settings.database()?;
            people::run(settings.data, database.as_ref(), command, format)
        }
        Command::Lookup(args) => lookup::run(&args),
        Command::Bulk(args) => bulk::run(&args, format),
        Command::Openapi(args) => openapi::run(&args),
        Command::Completions(args) => install::print_completions(&args),
    }
}

/// Returns the data directory.
fn data(args: DataArgs) -> Result<PathBuf, Failure> {
    Ok(SharedSettings::read(StoreArgs { data: args, database: None })?.data)
}

/// Returns the database of a command that needs one.
fn database(flag: Option<ServerUrl>, file: ConfigArgs) -> Result<ServerUrl, Failure> {
    SharedSettings::read(StoreArgs { database: flag, ..file.into() })?.required_database()
}
