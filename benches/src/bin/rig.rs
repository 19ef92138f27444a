//! Compares servers side by side: each in turn, round after round, so that whatever else the machine does falls on all alike.
//!
//! ```sh
//! cargo run --release -p enrich-benches --bin rig
//! ```
//!
//! It builds nothing: `cargo build --release --workspace --bins` comes before.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use enrich_benches::contender::{Contender, Kind};
use enrich_benches::load::{Load, Measured};
use enrich_benches::table::{Entry, Table};

/// Compares servers side by side.
#[derive(Debug, Parser)]
struct Args {
    /// What is compared, the first with all others
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bare,sqlite,several,two-nodes")]
    servers: Vec<Kind>,
    /// How many requests are under way at a time
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    connections: Vec<usize>,
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// How long each server is asked in each round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let binaries = std::env::current_exe()?.parent().ok_or("no directory")?.to_owned();
    let servers: Vec<_> =
        args.servers.iter().map(|kind| Contender::start(*kind, &binaries)).collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for connections in &args.connections {
        let mut table = Table::new(args.servers.iter().map(|kind| kind.name().to_owned()));
        for round in 0..=args.rounds {
            let mut entries = Vec::new();
            for server in &servers {
                let time = Duration::from_secs_f64(args.seconds);
                entries.push(runtime.block_on(measure(server, *connections, time))?);
            }
            // The first warms all of them up.
            if round > 0 {
                table.add(entries);
            }
        }
        println!("{connections} connections, {} rounds of {} s each:\n\n{table}", args.rounds, args.seconds);
    }
    Ok(())
}

/// Asks all nodes of a server at once.
async fn measure(server: &Contender, connections: usize, time: Duration) -> Result<Entry, Box<dyn Error>> {
    let addresses = server.addresses();
    let mut asking = tokio::task::JoinSet::new();
    for address in &addresses {
        let connections = connections / addresses.len();
        let load = Load { address: *address, connections, requests: server.requests.clone() };
        asking.spawn(async move { load.run(time).await });
    }
    let mut measured: Option<Measured> = None;
    while let Some(one) = asking.join_next().await {
        let one = one??;
        if let Some(other) = &one.other {
            return Err(format!("a reply that is not 200: {other}").into());
        }
        match &mut measured {
            Some(sum) => {
                sum.ok += one.ok;
                sum.latencies.add(&one.latencies)?;
            }
            None => measured = Some(one),
        }
    }
    let measured = measured.ok_or("a server without a node")?;
    let (p50, p99) = (measured.latency(50.0), measured.latency(99.0));
    Ok(Entry { ok_per_second: measured.ok_per_second(), p50, p99 })
}
