//! Counts the user instructions of requests and of their pieces, and system calls, and compares them with the
//! baseline in `instructions.txt`.
//!
//! ```sh
//! CARGO_PROFILE_RELEASE_STRIP=none cargo build --release -p enrich -p enrich-benches --bins
//! target/release/instructions                    # fails if a cost has increased
//! target/release/instructions --accept           # rewrites the baseline
//! target/release/instructions --functions found  # lists the most expensive functions
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "prints to the terminal")]

use std::error::Error;
use std::io::{self, ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use enrich_benches::baseline::{ACCEPT_COMMAND, Baseline, Change, Measurement, toolchain};
use enrich_benches::callgrind::{Count, count_one};
use enrich_benches::servers::Launcher;
use enrich_benches::system_calls;
use enrich_benches::workload::Workload;
use lexopt::prelude::*;

/// The allocator of the server, as the count includes allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
Count the user instructions of requests and of their pieces

Usage: instructions [OPTIONS] [CASE]...

Arguments:
  [CASE]...           Count only these cases

Options:
      --accept            Rewrite the baseline instead of comparing
      --servers <DIR>     Count the system calls of the programs here; they need no optimization
      --functions <CASE>  Print the most expensive functions of a case
  -h, --help              Print help
";

/// The action of one run.
#[derive(Debug)]
enum Action {
    PrintHelp,
    /// Compares the costs of the cases with the baseline, or rewrites it.
    Compare {
        cases: Vec<Workload>,
        accept: bool,
        servers: Option<PathBuf>,
    },
    PrintFunctions(Workload),
    /// Runs a case this many times. Used by this program itself, under valgrind.
    Run(Workload, usize),
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // A reader such as `head` needs no more lines.
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    match parse(lexopt::Parser::from_env())? {
        Action::PrintHelp => write!(stdout(), "{HELP}")?,
        Action::Compare { cases, accept, servers } => return compare(cases, accept, servers),
        Action::PrintFunctions(case) => {
            for (function, instructions) in count(case)?.functions().into_iter().take(40) {
                writeln!(stdout(), "{instructions:>10.1}  {function}")?;
            }
        }
        Action::Run(case, repetitions) => case.run(repetitions)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(mut args: lexopt::Parser) -> Result<Action, lexopt::Error> {
    let (mut cases, mut accept, mut servers) = (Vec::new(), false, None);
    while let Some(arg) = args.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Action::PrintHelp),
            Long("accept") => accept = true,
            Long("servers") => servers = Some(args.value()?.into()),
            Long("functions") => return Ok(Action::PrintFunctions(args.value()?.parse_with(case)?)),
            Long("run") => return Ok(Action::Run(args.value()?.parse_with(case)?, args.value()?.parse()?)),
            Value(name) => cases.push(name.parse_with(case)?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Action::Compare { cases, accept, servers })
}

fn case(name: &str) -> Result<Workload, String> {
    Workload::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Workload::all().map(Workload::name).collect();
        format!("unknown case {name:?}; choose one of {}", names.join(", "))
    })
}

/// Counts the instructions of a case in separate processes.
fn count(case: Workload) -> Result<Count, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    Ok(count_one(|repetitions| run_command(&program, case, repetitions), case.repetitions())?)
}

/// Returns the command that runs a case this many times.
fn run_command(program: &Path, case: Workload, repetitions: usize) -> Command {
    let mut command = Command::new(program);
    command.args(["--run", case.name(), &repetitions.to_string()]);
    command
}

fn measure(case: Workload, launcher: &Launcher) -> Result<Measurement, Box<dyn Error>> {
    let count = count(case)?;
    if !count.has_symbols() {
        return Err("the program has no symbols; build it with CARGO_PROFILE_RELEASE_STRIP=none".into());
    }
    let counted = case.server().map(|kind| system_calls::count_one(kind, launcher)).transpose();
    let system_calls = counted.map_err(|error| format!("cannot count system calls: {error}"))?;
    let (instructions, sha256) = (count.instructions(), count.sha256());
    Ok(Measurement { name: case.name().to_owned(), instructions, sha256, system_calls })
}

fn compare(cases: Vec<Workload>, accept: bool, servers: Option<PathBuf>) -> Result<ExitCode, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let baseline: Baseline = match std::fs::read_to_string(&file) {
        Ok(text) => text.parse()?,
        Err(_) => Baseline { toolchain: toolchain()?, measurements: Vec::new() },
    };
    let is_complete = cases.is_empty();
    let cases = if is_complete { Workload::all().collect() } else { cases };
    let launcher = match servers {
        Some(dir) => Launcher::in_dir(&dir),
        None => Launcher::beside_current_exe()?,
    };
    let mut measured = Baseline { toolchain: toolchain()?, measurements: Vec::new() };
    let mut changes = Vec::new();
    writeln!(stdout(), "{}", Baseline::COLUMNS)?;
    for case in cases {
        let measurement = measure(case, &launcher)?;
        let change = Change::between(&measurement, baseline.case(&measurement.name));
        writeln!(stdout(), "{measurement}  {change}")?;
        measured.measurements.push(measurement);
        changes.push(change);
    }
    if accept {
        if !is_complete {
            measured.measurements = baseline.with(measured.measurements);
        }
        std::fs::write(&file, measured.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if measured.toolchain != baseline.toolchain {
        writeln!(
            stdout(),
            "\nnot compared: the baseline was measured with {}, not with {}. Rewrite it and commit it:\n{ACCEPT_COMMAND}",
            baseline.toolchain,
            measured.toolchain
        )?;
        return Ok(ExitCode::FAILURE);
    }
    if changes.iter().any(|change| *change != Change::Unchanged) {
        writeln!(
            stdout(),
            "\nif the change is intended, rewrite the baseline and commit it:\n{ACCEPT_COMMAND}"
        )?;
    }
    let gone = |accepted: &&Measurement| measured.case(&accepted.name).is_none();
    let gone: Vec<_> = baseline.measurements.iter().filter(gone).map(|accepted| &*accepted.name).collect();
    if is_complete && !gone.is_empty() {
        writeln!(stdout(), "\nin the baseline, but not measured: {}", gone.join(", "))?;
        return Ok(ExitCode::FAILURE);
    }
    let has_failed = changes.iter().any(|change| matches!(change, Change::Increased(_) | Change::New));
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
