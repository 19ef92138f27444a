//! `enrich`: the command line of the person enrichment service.
//!
//! One file a command group: `serve`, `workspace`, `key`, `credits`, `people`, `config`, `lookup`, `bulk`. `args` has what
//! they take, `accounts` where the accounts are, `client` asks a server, `config` also has the file of `serve`, `sample` the sample data, `output` how answers
//! are printed, `failure` how errors are.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "nothing in a binary is public")]

mod accounts;
mod args;
mod bulk;
mod client;
mod config;
mod credits;
mod failure;
mod key;
mod lookup;
mod output;
mod people;
mod sample;
mod serve;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::accounts::Place;
use crate::args::{Args, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let data = args.data;
    match args.command {
        Command::Serve(args) => serve::run(data, &args),
        Command::Workspace { command } => workspace::run(Place::Dir(data), command),
        Command::Key { command } => key::run(Place::Dir(data), command),
        Command::Credits { command } => credits::run(Place::Dir(data), command),
        Command::People { command } => people::run(data, command),
        Command::Config { command } => config::command::run(&command),
        Command::Lookup(args) => lookup::run(&args),
        Command::Bulk(args) => bulk::run(&args),
    }
}
