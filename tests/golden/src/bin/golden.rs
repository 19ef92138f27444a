//! `golden`: tests any server against the transcripts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use enrich_golden::{Kind, Operator, Scenario, Server, scenarios};

/// Test a server against transcripts of its HTTP wire format
#[derive(Debug, Parser)]
#[command(name = "golden")]
struct Args {
    /// Directory of transcripts to use instead of the bundled ones
    #[arg(long, value_name = "DIR", global = true)]
    scenarios: Option<PathBuf>,
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Fill a new store with the scenarios' data and print the keys
    Prepare {
        /// Command line of the store's operator, e.g. `env ENRICH_DATA=DIR enrich`
        ///
        /// It is called with `workspace create …`, `key create …`, `key revoke …`, `people import …` and
        /// `people opt-out …`.
        #[arg(long, value_name = "COMMAND")]
        operator: String,
    },
    /// Play the scenarios and report the replies that differ
    Run {
        /// Address of the server, for plain HTTP
        #[arg(long, value_name = "ADDRESS")]
        address: SocketAddr,
        /// File with the server's keys, one `SCENARIO NAME KEY` per line
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
        /// Also compare the headers of the standalone host itself
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
