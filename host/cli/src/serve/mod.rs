//! `enrich serve`
//!
//! - `stores`: the stores
//! - `log`: the log
//! - `open_files`: the limit on connections
//! - `reload`: reloading the settings on SIGHUP

mod log;
mod open_files;
mod reload;
mod stores;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use enrich_host::workers::Workers;
use enrich_host::{Limits, Services, SystemArrivals, tls};
use enrich_lib::wire;
use enrich_sqlite::{Admin, DataDir};
use enrich_store::Actor;
use tokio::net::TcpSocket;
use tracing::info;

use self::reload::Reload;
use self::stores::Stores;
use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
use crate::key::NewKey;
use crate::settings::{Reading, Settings};
use crate::signals::Signals;
use crate::{key, output, runtime, sample};

pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = Settings::resolve(args, &Reading::default())?;
    let _log = log::start(settings.config.log_format)?;
    settings.log_warnings();
    let data = &settings.data;
    let key = match (args.sample, &settings.locations.database) {
        (false, _) => None,
        (true, None) => {
            // Binds first: if the port is in use, no sample must remain whose key was never shown.
            bind(settings.listen)?;
            make_sample(data)?
        }
        (true, Some(_)) => {
            return Err(Failure::usage("--sample creates a data directory, which --database replaces")
                .advise("remove --database and ENRICH_DATABASE"));
        }
    };
    let count = settings.config.workers.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    open_files::raise_limit(count)?;
    // This thread accepts connections and keeps the stores current. The workers serve the connections.
    let runtime = runtime::single_threaded()?;
    let workers =
        Workers::start(count).map_err(|e| Failure::new(format!("cannot start the worker threads: {e}")))?;
    runtime.block_on(async {
        let stores = Stores::open(data, &settings).await?;
        serve(args, &settings, &stores, &workers, key).await
    })
}

/// Creates the sample and returns its key, or returns `None` if the directory has data already.
fn make_sample(data: &Path) -> Result<Option<NewKey>, Failure> {
    if DataDir::open(data).is_ok() {
        output::remark(format!(
            "{} already contains data, so no sample was created; `enrich key create` creates a key",
            data.display()
        ));
        return Ok(None);
    }
    sample::create(data).map(Some)
}

async fn serve(
    args: &ServeArgs,
    settings: &Settings,
    stores: &Stores,
    workers: &Workers,
    key: Option<NewKey>,
) -> Result<(), Failure> {
    let reload = Reload::new(args, settings, &stores.people)?;
    let tls = reload.certificate().map(tls::config);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener =
        bind(settings.listen)?.listen(WAITING_MAX).map_err(|e| cannot_listen(settings.listen, &e))?;
    let address = listener.local_addr().map_err(|e| Failure::new(format!("cannot listen: {e}")))?;
    let url = format!("{scheme}://{address}");
    let shutdown = shutdown()?;
    let services = Services {
        service: stores.service(&settings.config, reload.resolver()),
        arrivals: Arc::new(SystemArrivals),
        limits: Limits {
            connections_max: open_files::connections_max(settings)?,
            ..settings.config.limits()
        },
        tls,
        date_header: true,
    };
    info!(
        accounts = settings.locations.accounts(&settings.data),
        windows = %settings.locations.windows,
        people = %settings.data.display(),
        "stores"
    );
    info!(%url, "serving");
    if let Some(key) = key {
        show_sample(&settings.data, &url, &key)?;
    }
    tokio::select! {
        () = workers.run(listener, services, shutdown) => {}
        () = stores.keep_current() => {}
        () = reload.keep_current() => {}
    }
    stores.close().await;
    info!("stopped");
    Ok(())
}

/// Backlog of connections to accept. A client that finds the backlog full retries only after a second, and the 128 entries
/// that std uses fill up within a few milliseconds of a burst.
const WAITING_MAX: u32 = 4_096;

fn bind(address: SocketAddr) -> Result<TcpSocket, Failure> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    bound.map_err(|e| cannot_listen(address, &e))
}

fn cannot_listen(address: SocketAddr, why: &io::Error) -> Failure {
    Failure::new(format!("cannot listen on {address}: {why}"))
        .advise("choose another address with --listen; port 0 selects a free port")
}

fn show_sample(data: &Path, url: &str, NewKey { id, key }: &NewKey) -> Result<(), Failure> {
    let (key, path, email) = (key.reveal(), wire::PATH, sample::EMAIL);
    let text = format!(
        "\nThe workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
         Try it from another terminal:\n\n\
         curl -i {url}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{email}\"}}'\n"
    );
    let mut admin = Admin::open(&DataDir::open(data)?)?;
    key::deliver(*id, &text, || Ok(admin.revoke_key(*id, &Actor::operator(SystemArrivals::now()))?))
}

/// Listens for signals and returns a future that completes on SIGTERM or SIGINT.
fn shutdown() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = Signals::new()?;
    Ok(async move {
        let signal = if signals.next().await == Exit::Terminated { "SIGTERM" } else { "SIGINT" };
        info!("{signal}: stopping");
    })
}
