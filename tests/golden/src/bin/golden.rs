//! `golden`: holds any server against the transcripts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use enrich_golden::{Kind, Operator, Scenario, Server, scenarios};

/// Holds a server against transcripts of what comes over the wire.
#[derive(Debug, Parser)]
#[command(name = "golden")]
struct Args {
    /// A directory of transcripts, other than those that come with it
    #[arg(long, value_name = "DIR", global = true)]
    scenarios: Option<PathBuf>,
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Give a store all that the scenarios take as given, before its server starts, and print the keys
    Prepare {
        /// The command line of the store's operator, as `enrich --data DIR`: it is called with `workspace create …`,
        /// `key create …`, `key revoke …`, `people import …` and `people suppress …`
        #[arg(long, value_name = "COMMAND")]
        operator: String,
    },
    /// Play the scenarios, and say which replies are otherwise
    Run {
        /// Where the server listens, for plain HTTP
        #[arg(long, value_name = "ADDRESS")]
        address: SocketAddr,
        /// The keys that it knows: `SCENARIO NAME KEY` a line
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
        /// It is the standalone host: compare headers of the server itself as well
        #[arg(long)]
        host: bool,
    },
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let scenarios = match args.scenarios {
        None => scenarios()?,
        Some(dir) => Scenario::read_dir(&dir)?,
    };
    match args.command {
        Task::Prepare { operator } => {
            let operator =
                Operator::new(operator.split_whitespace()).ok_or("the operator's command is empty")?;
            print!("{}", operator.prepare(&scenarios)?);
            Ok(ExitCode::SUCCESS)
        }
        Task::Run { address, keys, host } => {
            let keys = fs::read_to_string(keys)?.parse()?;
            let kind = if host { Kind::Host } else { Kind::Gateway };
            let report = Server { address, kind, keys, faults: None }.run(&scenarios);
            println!("{report}");
            Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
