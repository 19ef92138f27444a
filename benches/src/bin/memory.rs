//! The service with in-memory stores as a server, with the same threads, allocator and log as `enrich serve`.

use std::error::Error;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use enrich_benches::{dataset, memory};
use enrich_host::Services;
use enrich_host::workers::Workers;
use tokio::net::TcpListener;

/// How often the accounts are advanced, as in `enrich serve`.
const TICK: Duration = Duration::from_millis(250);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[allow(clippy::print_stderr, reason = "the launcher reads the address from stderr")]
fn main() -> Result<(), Box<dyn Error>> {
    let _log = memory::start_log();
    let (service, accounts) = memory::service(&dataset::Keys::default(), dataset::PEOPLE)?;
    let workers = Workers::start(available_parallelism().unwrap_or(NonZeroUsize::MIN))?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        eprintln!("serving http://{}", listener.local_addr()?);
        tokio::spawn(async move {
            let started = Instant::now();
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                accounts.advance(started.elapsed());
            }
        });
        workers.run(listener, Services::new(service), std::future::pending()).await;
        Ok(())
    })
}
