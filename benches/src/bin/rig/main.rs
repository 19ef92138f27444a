//! Compares servers in alternating rounds, so that other load on the machine affects all of them equally.
//!
//! ```sh
//! cargo build --release -p enrich -p enrich-benches --bins --features enrich-benches/rig # the rig builds nothing
//! target/release/rig                                       # the servers and the rig share all cores
//! target/release/rig --pin                                 # one core for the servers, another for the rig
//! target/release/rig --pin --case rate-limited             # the cost of a refusal, compared with a bare 404
//! target/release/rig --pin --rate 20000                    # latencies at a rate that all servers can sustain
//! target/release/rig --pin --scale                         # growth with workspaces, people and connections
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "prints to the terminal")]

mod args;

use std::error::Error;
use std::process::ExitCode;

use enrich_benches::disk::DiskLatency;
use enrich_benches::load::{Load, Pace};
use enrich_benches::machine::{self, CoreUsage};
use enrich_benches::scale::Scale;
use enrich_benches::servers::{Launcher, Server, SharedStores};
use enrich_benches::table::{RoundResult, Table};
use enrich_tests::servers::{Postgres, Redis};

use crate::args::{Action, Comparison, HELP, ScaleOptions, parse};

/// The cores of `--pin`.
const SERVER_CORE: usize = 0;
const RIG_CORE: usize = 1;

/// A round is discarded if a server was less busy than the first value while the rig was busier than the
/// second: the rig was the bottleneck.
const SERVER_BUSY_MIN: f64 = 0.90;
const RIG_BUSY_MAX: f64 = 0.95;

/// Starts PostgreSQL, with durable commits, and Redis.
fn start_stores() -> SharedStores {
    let (postgres, redis) = (Postgres::start_with(&["fsync=on"], &[]), Redis::start());
    SharedStores {
        postgres: postgres.tcp_url("postgres"),
        redis: redis.url(),
        processes: Box::new((postgres, redis)),
    }
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
    match parse(lexopt::Parser::from_env())? {
        Action::PrintHelp => print!("{HELP}"),
        Action::Compare(options) => compare(&options)?,
        Action::Scale(options) => measure_scale(&options)?,
    }
    Ok(())
}

fn measure_scale(options: &ScaleOptions) -> Result<(), Box<dyn Error>> {
    let launcher = Launcher { stores: Some(start_stores), ..Launcher::beside_current_exe()? };
    let scale = Scale {
        launcher: &launcher,
        cores: options.pin.then_some((SERVER_CORE, RIG_CORE)),
        time: options.time,
        on_result: |data, point| {
            eprintln!("{} {data}: {:.1} µs", point.count, point.cpu.as_secs_f64() * 1e6);
        },
    };
    let curves = scale.measure(options.workspaces_max, options.people_max)?;
    println!("{curves}");
    Ok(())
}

fn compare(options: &Comparison) -> Result<(), Box<dyn Error>> {
    let launcher = Launcher { stores: Some(start_stores), ..Launcher::beside_current_exe()? };
    let with_log = |logs_lookups| Launcher { logs_lookups, ..launcher.clone() };
    if options.pin {
        // Child processes inherit the core of this thread.
        machine::pin(SERVER_CORE)?;
    }
    let servers: Vec<_> = options
        .servers
        .iter()
        .map(|(kind, log)| Server::start(*kind, &with_log(*log)))
        .collect::<Result<_, _>>()?;
    if options.pin {
        machine::pin(RIG_CORE)?;
    }
    options.connections.iter().try_for_each(|count| compare_with(options, &servers, *count))
}

/// Runs the rounds with this number of connections.
fn compare_with(options: &Comparison, servers: &[Server], connections: usize) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new(servers.iter().map(Server::label));
    let requests: Vec<_> = servers.iter().map(|server| server.requests(options.case)).collect();
    let mut discarded = 0;
    // The latency of the disk matters if requests do not wait for each other.
    let mut disk = options.rate.map(|_| DiskLatency::new()).transpose()?;
    // The first round is a warm-up.
    let mut is_warm = false;
    while table.rounds() < options.rounds && discarded <= options.rounds {
        let mut round = Vec::new();
        let mut is_rig_limited = false;
        for (server, requests) in servers.iter().zip(&requests) {
            let (result, rig_busy) = measure(options, server, requests, connections)?;
            let server_busy = result.busy.unwrap_or(1.0);
            is_rig_limited |=
                options.rate.is_none() && server_busy < SERVER_BUSY_MIN && rig_busy > RIG_BUSY_MAX;
            round.push(result);
        }
        if let Some(disk) = &mut disk {
            disk.measure(options.time / 4)?;
        }
        match (is_warm, is_rig_limited) {
            (false, _) => is_warm = true,
            (true, true) => discarded += 1,
            (true, false) => table.add(round),
        }
    }
    let pace = options.rate.map(|rate| format!(", {rate} requests per second")).unwrap_or_default();
    let cores = if options.pin { "one core for the servers and one for the rig" } else { "all cores shared" };
    println!(
        "{}, {connections} connections{pace}, {} rounds of {} s each, {cores}:\n\n{table}",
        options.case.into_str(),
        table.rounds(),
        options.time.as_secs_f64()
    );
    if let Some(disk) = disk {
        println!("{disk}\n");
    }
    if discarded > 0 {
        println!("{discarded} rounds were discarded because the rig was the bottleneck\n");
    }
    Ok(())
}

/// Sends requests to all nodes of a server. Returns the results and the utilization of the rig's core.
fn measure(
    options: &Comparison,
    server: &Server,
    requests: &[Vec<u8>],
    connections: usize,
) -> Result<(RoundResult, f64), Box<dyn Error>> {
    let addresses = server.addresses();
    let load = Load { addresses: &addresses, connections, requests, status: server.status(options.case) };
    let time = options.time;
    let pace = options.rate.map_or(Pace::Closed(time), |rate| Pace::Rate(rate, time));
    let rig = std::process::id();
    let mut load = load.connect()?;
    let core = options.pin.then(|| CoreUsage::start(SERVER_CORE)).transpose()?;
    let (server_time, rig_time) = (server.cpu_time()?, machine::cpu_time(rig)?);
    let measured = load.run(pace)?;
    let busy = core.map(|core| core.busy()).transpose()?;
    let cpu = (server.cpu_time()? - server_time).div_f64(measured.answered as f64);
    let rig_time = machine::cpu_time(rig)? - rig_time;
    let rig_busy = rig_time.div_duration_f64(measured.elapsed);
    let client_cpu = rig_time.div_f64(measured.answered as f64);
    let (p50, p99) = (measured.latency(50.0), measured.latency(99.0));
    Ok((RoundResult { per_second: measured.per_second(), p50, p99, cpu, client_cpu, busy }, rig_busy))
}
