//! Counts the user instructions of requests and of their pieces, and system calls, and compares them with those in
//! `instructions.txt`.
//!
//! ```sh
//! cargo build --release -p enrich -p enrich-benches --bins
//! target/release/instructions                    # fails if a cost has increased
//! target/release/instructions --accept           # rewrites the figures
//! target/release/instructions --functions found  # lists the most expensive functions
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use enrich_benches::callgrind::{Count, count_one};
use enrich_benches::contender::Launch;
use enrich_benches::counted::Counted;
use enrich_benches::figures::{ACCEPT, Figures, Line, Verdict, toolchain};
use enrich_benches::system_calls;

/// The allocator of the server, as the count includes allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Count the user instructions of requests and of their pieces
#[derive(Debug, Parser)]
struct Args {
    /// Count only these cases
    cases: Vec<String>,
    /// Rewrite the figures instead of comparing with them
    #[arg(long)]
    accept: bool,
    /// Print the functions with the most instructions of a case
    #[arg(long, value_name = "CASE")]
    functions: Option<String>,
    /// Program whose system calls are counted, instead of the one beside this; it needs no optimisation
    #[arg(long, value_name = "FILE")]
    enrich: Option<PathBuf>,
    /// Run a case this many times (used internally, under valgrind)
    #[arg(long, num_args = 2, value_names = ["CASE", "TIMES"], hide = true)]
    run: Option<Vec<String>>,
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    if let Some([case, times]) = args.run.as_deref() {
        named(case)?.run(times.parse()?)?;
    } else if let Some(case) = &args.functions {
        for (function, instructions) in count(named(case)?)?.functions().into_iter().take(40) {
            println!("{instructions:>10.1}  {function}");
        }
    } else {
        return compare(&args);
    }
    Ok(ExitCode::SUCCESS)
}

fn named(case: &str) -> Result<Counted, String> {
    Counted::named(case).ok_or_else(|| {
        let names: Vec<_> = Counted::all().map(Counted::name).collect();
        format!("there is no case {case}; there are {}", names.join(", "))
    })
}

/// Counts the instructions of a case in separate processes.
fn count(case: Counted) -> Result<Count, Box<dyn Error>> {
    let this = std::env::current_exe()?;
    let command = |times: usize| {
        let mut command = Command::new(&this);
        command.args(["--run", case.name(), &times.to_string()]);
        command
    };
    Ok(count_one(command, case.times())?)
}

fn compare(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let accepted: Figures = match std::fs::read_to_string(&file) {
        Ok(text) => text.parse()?,
        Err(_) => Figures { toolchain: toolchain()?, lines: Vec::new() },
    };
    let cases = match &args.cases[..] {
        [] => Counted::all().collect(),
        names => names.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?,
    };
    let mut counted = Figures { toolchain: toolchain()?, lines: Vec::new() };
    let mut verdicts = Vec::new();
    let beside = Launch::beside_this()?;
    let launch = Launch { enrich: args.enrich.clone().unwrap_or(beside.enrich.clone()), ..beside };
    println!("{}", Figures::COLUMNS);
    for case in cases {
        let count = count(case)?;
        let (instructions, sha256) = (count.instructions(), count.sha256());
        let system_calls = case.server().and_then(|kind| {
            let counted = system_calls::count_one(kind, &launch);
            counted.inspect_err(|error| eprintln!("system calls can't be counted: {error}")).ok()
        });
        let line = Line { name: case.name().to_owned(), instructions, sha256, system_calls };
        let verdict = Verdict::of(&line, accepted.of(&line.name));
        println!("{line}  {verdict}");
        counted.lines.push(line);
        verdicts.push(verdict);
    }
    if args.accept {
        if !args.cases.is_empty() {
            counted.lines = accepted.with(counted.lines);
        }
        std::fs::write(&file, counted.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if counted.toolchain != accepted.toolchain {
        println!(
            "\nnot compared: instructions.txt is of {}, and this is {}",
            accepted.toolchain, counted.toolchain
        );
        return Ok(ExitCode::SUCCESS);
    }
    if verdicts.iter().any(|verdict| *verdict != Verdict::Same) {
        println!("\nif that is what the change costs or saves, accept it, with the change:\n{ACCEPT}");
    }
    let is_refused = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Dearer(_) | Verdict::New));
    Ok(if is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
