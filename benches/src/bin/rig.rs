//! Compares servers side by side: each in turn, round after round, so that whatever else the machine does falls on all alike.
//!
//! ```sh
//! cargo build --release -p enrich-host -p enrich-benches --bins # the rig builds nothing
//! target/release/rig                                            # the servers and the rig share all cores
//! target/release/rig --pin                                      # the servers have one core, the rig another one
//! target/release/rig --pin --case rate_limited                  # what a refusal costs, beside a bare 404
//! target/release/rig --pin --rate 20000                         # latencies at a rate that all of them can keep
//! target/release/rig --pin --scale --svg benches/scale.svg      # what grows with workspaces, people and connections
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use enrich_benches::contender::{Contender, Kind, Launch};
use enrich_benches::load::{Load, Pace};
use enrich_benches::machine::{self, Core};
use enrich_benches::scale::Scale;
use enrich_benches::table::{Entry, Table};
use enrich_benches::world::Case;

/// The cores of `--pin`.
const SERVER_CORE: usize = 0;
const RIG_CORE: usize = 1;

/// Below this the server waited, and above the other the rig was why: what they did together tells nothing of the server.
const SERVER_BUSY_MIN: f64 = 0.90;
const RIG_BUSY_MAX: f64 = 0.95;

/// Compares servers side by side
#[derive(Debug, Parser)]
struct Args {
    /// What is compared, the first with all others
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bare,memory,sqlite,sqlite-relaxed,several,two-nodes"
    )]
    servers: Vec<Kind>,
    /// What is asked, by its answer
    #[arg(long, value_enum, default_value = "found")]
    case: Case,
    /// How many connections there are
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    connections: Vec<usize>,
    /// How many requests a second there are, whether or not the server keeps up, rather than as many as it answers
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// How long each server is asked in each round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Give the servers, with PostgreSQL and Redis, one core, and the rig another one
    #[arg(long)]
    pin: bool,
    /// Measure what grows with workspaces, people and connections instead
    #[arg(long, conflicts_with_all = ["servers", "case", "connections", "rate", "rounds"])]
    scale: bool,
    /// With up to so many workspaces
    #[arg(long, requires = "scale", default_value_t = 1_000_000)]
    workspaces_max: usize,
    /// With up to so many people
    #[arg(long, requires = "scale", default_value_t = 1_000_000)]
    people_max: usize,
    /// Draw it into this file
    #[arg(long, requires = "scale")]
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let launch = Launch::beside_this()?;
    if args.pin {
        // What is started runs where this thread does.
        machine::pin(SERVER_CORE)?;
    }
    if args.scale {
        return measure_scale(&args, &launch);
    }
    let servers: Vec<_> =
        args.servers.iter().map(|kind| Contender::start(*kind, &launch)).collect::<Result<_, _>>()?;
    if args.pin {
        machine::pin(RIG_CORE)?;
    }
    args.connections.iter().try_for_each(|connections| compare(&args, &servers, *connections))
}

fn measure_scale(args: &Args, launch: &Launch) -> Result<(), Box<dyn Error>> {
    let scale = Scale {
        launch,
        cores: args.pin.then_some((SERVER_CORE, RIG_CORE)),
        time: Duration::from_secs_f64(args.seconds),
        tell: |what, point| {
            eprintln!("{} {what}: {:.1} µs", point.count, point.cpu.as_secs_f64() * 1e6);
        },
    };
    let curves = scale.measure(args.workspaces_max, args.people_max)?;
    println!("{curves}");
    if let Some(file) = &args.svg {
        std::fs::write(file, curves.plot())?;
    }
    Ok(())
}

/// Rounds with so many connections.
fn compare(args: &Args, servers: &[Contender], connections: usize) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new(servers.iter().map(|server| server.kind.name().to_owned()));
    let asked: Vec<_> = servers.iter().map(|server| server.requests(args.case)).collect();
    let mut dropped = 0;
    // The first warms all of them up.
    let mut is_warm = false;
    while table.rounds() < args.rounds && dropped <= args.rounds {
        let mut round = Vec::new();
        let mut is_rigs = false;
        for (server, requests) in servers.iter().zip(&asked) {
            let (entry, rig_busy) = measure(args, server, requests, connections)?;
            let server_busy = entry.busy.unwrap_or(1.0);
            is_rigs |= args.rate.is_none() && server_busy < SERVER_BUSY_MIN && rig_busy > RIG_BUSY_MAX;
            round.push(entry);
        }
        match (is_warm, is_rigs) {
            (false, _) => is_warm = true,
            (true, true) => dropped += 1,
            (true, false) => table.add(round),
        }
    }
    let pace = args.rate.map(|rate| format!(", {rate} requests a second")).unwrap_or_default();
    let cores = if args.pin { "one core for the servers and one for the rig" } else { "all cores shared" };
    println!(
        "{:?}, {connections} connections{pace}, {} rounds of {} s each, {cores}:\n\n{table}",
        args.case,
        table.rounds(),
        args.seconds
    );
    if dropped > 0 {
        println!("{dropped} rounds were dropped: the rig was busy all the time, and a server was not\n");
    }
    Ok(())
}

/// Asks all nodes of a server, and tells how busy the rig was meanwhile.
fn measure(
    args: &Args,
    server: &Contender,
    requests: &[Vec<u8>],
    connections: usize,
) -> Result<(Entry, f64), Box<dyn Error>> {
    let addresses = server.addresses();
    let load = Load { addresses: &addresses, connections, requests, status: server.status(args.case) };
    let time = Duration::from_secs_f64(args.seconds);
    let pace = args.rate.map_or(Pace::Closed(time), |rate| Pace::Rate(rate, time));
    let rig = std::process::id();
    let mut asking = load.connect()?;
    let core = args.pin.then(|| Core::watch(SERVER_CORE)).transpose()?;
    let (server_time, rig_time) = (server.cpu_time()?, machine::cpu_time(rig)?);
    let measured = asking.run(pace)?;
    let busy = core.map(|core| core.busy()).transpose()?;
    let cpu = (server.cpu_time()? - server_time).div_f64(measured.answered as f64);
    let rig_busy = (machine::cpu_time(rig)? - rig_time).div_duration_f64(measured.elapsed);
    let (p50, p99) = (measured.latency(50.0), measured.latency(99.0));
    Ok((Entry { per_second: measured.per_second(), p50, p99, cpu, busy }, rig_busy))
}
