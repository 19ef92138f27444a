//! `enrich serve`
//!
//! `settings` what it works with · `open_files` the limit on connections · `places` where its stores are · `stores` ·
//! `reload` what SIGHUP takes anew.

mod open_files;
mod places;
mod reload;
mod settings;
mod stores;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use enrich_host::workers::Workers;
use enrich_host::{Limits, Services, SystemArrivals, tls};
use enrich_lib::key::ApiKey;
use enrich_lib::wire;
use enrich_sqlite::DataDir;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use self::reload::Reload;
use self::stores::Stores;
use crate::args::LogFormat;
use crate::config::Reading;
use crate::failure::Failure;
use crate::{output, sample};

pub use self::settings::{Given, Settings};

pub fn run(given: Given) -> Result<(), Failure> {
    let settings = Settings::resolve(&given, &Reading::default())?;
    start_log(settings.config.log_format);
    settings.log_warnings();
    let data = &settings.data;
    let key = match (given.args.sample, &settings.places.database) {
        (false, _) => None,
        (true, None) => make_sample(data)?,
        (true, Some(_)) => {
            return Err(Failure::new("the sample is in a data directory, and the accounts are not")
                .advise("leave --database and ENRICH_DATABASE out to try the sample"));
        }
    };
    let count = settings.config.workers.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    open_files::raise_limit(count)?;
    let cant_start = |e| Failure::new(format!("can't start: {e}"));
    // This thread accepts connections and keeps the stores current; the workers serve.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cant_start)?;
    let workers = Workers::start(count).map_err(cant_start)?;
    runtime.block_on(async {
        let stores = Stores::open(data, &settings).await?;
        serve(&given, &settings, &stores, &workers, key).await
    })
}

/// Makes the sample if there is no data yet; its key is known only then.
fn make_sample(data: &Path) -> Result<Option<ApiKey>, Failure> {
    if DataDir::open(data).is_ok() {
        output::remark(format!(
            "{} has data already, which is served as it is; `enrich key create` makes a new key for it",
            data.display()
        ));
        return Ok(None);
    }
    sample::create(data).map(Some)
}

async fn serve(
    given: &Given,
    settings: &Settings,
    stores: &Stores,
    workers: &Workers,
    key: Option<ApiKey>,
) -> Result<(), Failure> {
    let reload = Reload::new(given, settings, &stores.people)?;
    let tls = reload.certificate().map(tls::config);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = listen(settings.listen).map_err(|e| {
        let failure = Failure::new(format!("can't listen on {}: {e}", settings.listen));
        failure.advise("--listen ADDRESS names another; port 0 takes a free one")
    })?;
    let address = listener.local_addr().map_err(|e| Failure::new(format!("can't listen: {e}")))?;
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
        accounts = settings.places.accounts(&settings.data),
        windows = %settings.places.windows,
        people = %settings.data.display(),
        "stores"
    );
    info!(%url, "serving");
    if let Some(key) = key {
        show_sample(&url, &key);
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

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    /// Connections that wait to be accepted. One that finds no room tries again after a second, and std's 128 are full after
    /// a few milliseconds of a crowd.
    const WAITING_MAX: u32 = 4_096;

    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

fn show_sample(url: &str, key: &ApiKey) {
    let (key, path, email) = (key.reveal(), wire::PATH, sample::EMAIL);
    output::line(format!(
        "\nThe workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
         Try it from another terminal:\n\n\
         curl -i {url}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{email}\"}}'\n"
    ));
}

/// SIGTERM or SIGINT.
fn shutdown() -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| signal(kind).map_err(|e| Failure::new(format!("can't listen for signals: {e}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: stopping"),
            _ = interrupt.recv() => info!("SIGINT: stopping"),
        }
    })
}

/// To stderr; `ENRICH_LOG` chooses what, as `RUST_LOG` does elsewhere.
fn start_log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ENRICH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
