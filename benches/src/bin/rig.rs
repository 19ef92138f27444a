//! Compares servers in alternating rounds, so that other load on the machine affects all of them equally.
//!
//! ```sh
//! cargo build --release -p enrich -p enrich-benches --bins --features enrich-benches/rig # the rig builds nothing
//! target/release/rig                                            # the servers and the rig share all cores
//! target/release/rig --pin                                      # one core for the servers, another for the rig
//! target/release/rig --pin --case rate_limited                  # the cost of a refusal, compared with a bare 404
//! target/release/rig --pin --rate 20000                         # latencies at a rate that all servers can sustain
//! target/release/rig --pin --scale --svg benches/scale.svg      # growth with workspaces, people and connections
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use enrich_benches::contender::{Contender, Kind, Launch, SharedStores};
use enrich_benches::load::{Load, Pace};
use enrich_benches::machine::{self, Core};
use enrich_benches::scale::Scale;
use enrich_benches::table::{Entry, Table};
use enrich_benches::world::Case;
use enrich_tests::servers::{Postgres, Redis};

/// The cores of `--pin`.
const SERVER_CORE: usize = 0;
const RIG_CORE: usize = 1;

/// A round is discarded if a server was less busy than the first value while the rig was busier than the second: the rig was
/// the bottleneck.
const SERVER_BUSY_MIN: f64 = 0.90;
const RIG_BUSY_MAX: f64 = 0.95;

/// Compare servers side by side
#[derive(Debug, Parser)]
struct Args {
    /// Servers to compare; the others are compared with the first
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bare,memory,sqlite,sqlite-relaxed,several,two-nodes"
    )]
    servers: Vec<Kind>,
    /// Kind of request, named after its reply
    #[arg(long, value_enum, default_value = "found")]
    case: Case,
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    connections: Vec<usize>,
    /// Send this many requests per second, even if the server does not keep up, instead of as many as it answers
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Duration of each server's turn in a round, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Pin the servers, with PostgreSQL and Redis, to one core and the rig to another
    #[arg(long)]
    pin: bool,
    /// Measure growth with workspaces, people and connections instead
    #[arg(long, conflicts_with_all = ["servers", "case", "connections", "rate", "rounds"])]
    scale: bool,
    /// Maximum number of workspaces
    #[arg(long, requires = "scale", default_value_t = 1_000_000)]
    workspaces_max: usize,
    /// Maximum number of people
    #[arg(long, requires = "scale", default_value_t = 1_000_000)]
    people_max: usize,
    /// Write the charts to this file
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
    let launch = Launch { stores: Some(start_stores), ..Launch::beside_this()? };
    if args.pin {
        // Child processes inherit the core of this thread.
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

/// Starts PostgreSQL, with durable commits, and Redis.
fn start_stores() -> SharedStores {
    let (postgres, redis) = (Postgres::start_with(&["fsync=on"], &[]), Redis::start());
    SharedStores {
        postgres: postgres.tcp_url("postgres"),
        redis: redis.url(),
        processes: Box::new((postgres, redis)),
    }
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

/// Runs the rounds with this number of connections.
fn compare(args: &Args, servers: &[Contender], connections: usize) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new(servers.iter().map(|server| server.kind.name().to_owned()));
    let asked: Vec<_> = servers.iter().map(|server| server.requests(args.case)).collect();
    let mut dropped = 0;
    // The first round is a warm-up.
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

/// Sends requests to all nodes of a server. Returns the results and the utilization of the rig's core.
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
