//! `enrich`: the command line of the person enrichment service.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(unreachable_pub, reason = "only the command line, the log and the files are public")]

mod accounts;
mod args;
mod bulk;
mod client;
mod commands;
mod date;
mod directory;
mod duration;
mod failure;
pub mod files;
mod flags;
mod listen;
pub mod log;
mod number;
mod output;
mod panics;
mod path;
mod private_file;
mod public_url;
mod runtime;
mod serve;
mod settings;
mod signals;
mod url;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};

use crate::args::{Args, Command, ServeArgs, StoreArgs};
use crate::commands::{
    backup, check, completions, config, conform, copy, credits, health, key, lookup, migrate, openapi,
    people, usage, user, vendors, workspace,
};
use crate::failure::{Exit, Failure};
use crate::output::Format;
use crate::settings::{Layers, SharedSettings};

/// Returns the parser of the command line.
pub fn command() -> clap::Command {
    Args::grouped()
}

/// Runs the command in the arguments of this process, and returns its exit code.
pub fn main() -> ExitCode {
    panics::hide_messages();
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_parsed(&printable(with_usage(error))),
    };
    let Args { json, config, command } =
        Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let survived = signals::survive_file_size_limit();
    match survived.and_then(|()| run(Layers::new(config), command, Format { json })) {
        Ok(()) | Err(Failure { exit: Exit::Complete, .. }) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure, json);
            failure.exit.into()
        }
    }
}

/// Replaces the usage in an error by that of the command's help. Clap's own one lists the flags that have an
/// environment variable.
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

/// Escapes the control characters of the arguments that an error quotes.
fn printable(mut error: clap::Error) -> clap::Error {
    let context: Vec<_> = error.context().map(|(kind, value)| (kind, value.clone())).collect();
    for (kind, value) in context {
        if let ContextValue::String(text) = value {
            error.insert(kind, ContextValue::String(output::printable(&text)));
        }
    }
    error
}

/// Prints the help, the version or a mistake in the arguments, and returns the exit code.
fn not_parsed(error: &clap::Error) -> ExitCode {
    let is_json = error.use_stderr() && std::env::args_os().any(|arg| arg == "--json");
    let failure = if is_json {
        Failure::arguments(error)
    } else if error.use_stderr() {
        // As plain text: the error can suggest what contains an argument.
        output::remark(error.render().to_string().trim_end());
        return Exit::Usage.into();
    } else {
        match output::unless_closed(error.print()) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(failure) => failure,
        }
    };
    output::error(&failure, is_json);
    failure.exit.into()
}

/// Runs a command with these settings.
fn run(layers: Layers, command: Command, format: Format) -> Result<(), Failure> {
    let settings = |layers, store: &StoreArgs| SharedSettings::read(&flags::of_store(layers, store));
    let accounts = |layers, store: &StoreArgs| settings(layers, store)?.accounts();
    let database = |layers: Layers, flag: &'static str, url: Option<&str>| {
        SharedSettings::read(&layers.flag(flag, "database", url))?.required_database()
    };
    match command {
        Command::Serve(ServeArgs { sample, settings }) => {
            serve::run(&flags::of_serve(layers, &settings), sample)
        }
        // Docker reserves the exit code 2. Its health check has a valid command line, but can have an invalid setting.
        Command::Health(args) => {
            health::run(&layers, &args, format).map_err(|failure| failure.exit(Exit::Failed))
        }
        Command::Config { command } => config::run(layers, command, format),
        Command::Vendors { command } => vendors::run(layers, command, format),
        Command::Migrate(args) => {
            migrate::run(&database(layers, "--database", args.database.as_deref())?, &args, format)
        }
        Command::Copy(args) => copy::run(args.from, database(layers, "--to", args.to.as_deref())?, format),
        Command::Backup(args) => {
            backup::back_up(flags::directory(layers, &args.data)?.data(), &args.backup, format)
        }
        Command::Restore(args) => {
            backup::restore(&args.backup, flags::directory(layers, &args.data)?.data(), format)
        }
        Command::Check { store } => check::run(&settings(layers, &store)?, format),
        Command::Workspace { store, command } => workspace::run(accounts(layers, &store)?, command, format),
        Command::Key { store, command } => key::run(accounts(layers, &store)?, command, format),
        Command::Credits { store, command } => credits::run(accounts(layers, &store)?, command, format),
        Command::Usage { store, args } => usage::run(accounts(layers, &store)?, &args, format),
        Command::User { store, command } => user::run(&settings(layers, &store)?, command, format),
        Command::People { store, command } => {
            let settings = settings(layers, &store)?;
            people::run(settings.people()?, settings.confidence_min(), command, format)
        }
        Command::Lookup(args) => lookup::run(&args),
        Command::Bulk(args) => bulk::run(&args, format),
        Command::Conform(args) => conform::run(&args, format),
        Command::Openapi(args) => openapi::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
