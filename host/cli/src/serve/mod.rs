//! `enrich serve`
//!
//! - `socket`: listening sockets
//! - `stores`: the stores
//! - `console`: the web application
//! - `log`: the log
//! - `open_files`: the limit on connections
//! - `reload`: reloading the settings on SIGHUP

mod console;
mod log;
mod open_files;
mod reload;
mod socket;
mod stores;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use enrich_host::workers::Workers;
use enrich_host::{Services, SystemArrivals, tls};
use enrich_lib::wire;
use enrich_sqlite::{Admin, DataDir};
use enrich_store::Actor;
use tracing::info;

use self::console::{Host, WebApplication};
use self::reload::Reload;
use self::stores::Stores;
use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
use crate::key::StoredKey;
use crate::settings::{Reading, Settings};
use crate::signals::Signals;
use crate::values::SAMPLE_CONSOLE;
use crate::{key, output, runtime, sample};

pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = Settings::resolve(args, &Reading::default())?;
    let _log = log::start(settings.config.log_format)?;
    settings.log_warnings();
    let data = &settings.data;
    let console = console_address(args, &settings)?;
    let key = match (args.sample, &settings.locations.database) {
        (false, _) => None,
        (true, None) => {
            // Binds first: if the port is in use, no sample must remain whose key was never shown.
            socket::bind(settings.listen, "--listen")?;
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
        serve(args, &settings, &stores, &workers, console, key).await
    })
}

/// Returns the address of the web application, which is free, or `None` if there is no web application. The sample has one
/// unless its port is in use.
fn console_address(args: &ServeArgs, settings: &Settings) -> Result<Option<SocketAddr>, Failure> {
    if let Some(address) = settings.console.listen {
        socket::bind(address, console::FLAG)?;
        return Ok(Some(address));
    }
    if !args.sample {
        return Ok(None);
    }
    // Servers on free ports must not compete for one port.
    let port = if settings.listen.port() == 0 { 0 } else { SAMPLE_CONSOLE.port() };
    let address = SocketAddr::new(SAMPLE_CONSOLE.ip(), port);
    if let Err(failure) = socket::bind(address, console::FLAG) {
        output::remark(format!(
            "the web application does not start: {}; choose another address with {}",
            failure.what,
            console::FLAG
        ));
        return Ok(None);
    }
    Ok(Some(address))
}

/// Creates the sample and returns its key, or returns `None` if the directory has data already.
fn make_sample(data: &Path) -> Result<Option<StoredKey>, Failure> {
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
    console: Option<SocketAddr>,
    key: Option<StoredKey>,
) -> Result<(), Failure> {
    let reload = Reload::new(args, settings, &stores.people)?;
    let tls = reload.certificate().map(tls::config);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = socket::listen(settings.listen, "--listen")?;
    let address = listener.local_addr().map_err(|e| Failure::new(format!("cannot listen: {e}")))?;
    let url = format!("{scheme}://{address}");
    let signal = shutdown()?;
    let console = console.map(|listen| {
        let tls = reload.certificate().map(tls::config);
        WebApplication::start(listen, Host { settings, stores, tls, api_url: url.clone() })
    });
    let console = console.transpose()?;
    let services = Services {
        service: stores.service(&settings.config, reload.resolver()),
        arrivals: Arc::new(SystemArrivals),
        limits: settings.config.limits(open_files::connections_max(settings, console.is_some())?),
        tls,
        observer: stores.usage(),
        date_header: true,
    };
    info!(
        accounts = settings.locations.accounts(&settings.data),
        windows = %settings.locations.windows,
        people = %settings.data.display(),
        "stores"
    );
    if let Some(console) = &console {
        info!(url = %console.url, "web application");
    }
    info!(%url, "serving");
    if let Some(key) = key {
        show_sample(&settings.data, &url, &key)?;
        if let Some(console) = &console {
            show_invitation(&settings.data, &console.url).await?;
        }
    }
    let stop_console = console.as_ref().map(WebApplication::stop_token);
    let shutdown = async move {
        signal.await;
        if let Some(stop) = stop_console {
            stop.cancel();
        }
    };
    tokio::select! {
        () = workers.run(listener, services, shutdown) => {}
        // Ends the process at once: its connections close without an answer.
        failure = stores.keep_current() => return Err(failure),
        () = reload.keep_current() => {}
    }
    if let Some(console) = console {
        console.stopped().await;
    }
    stores.close().await?;
    info!("stopped");
    Ok(())
}

fn show_sample(data: &Path, url: &str, StoredKey { id, key }: &StoredKey) -> Result<(), Failure> {
    let (key, path, email) = (key.reveal(), wire::PATH, sample::EMAIL);
    let text = format!(
        "\nThe workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
         Try it from another terminal:\n\n\
         curl -i {url}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{email}\"}}'\n"
    );
    let mut admin = Admin::open(&DataDir::open(data)?)?;
    key::deliver(*id, &text, || Ok(admin.revoke_key(*id, &Actor::operator(SystemArrivals::now()))?))
}

/// Creates and prints a one-time link, with which the admin of the sample sets a password.
async fn show_invitation(data: &Path, console: &str) -> Result<(), Failure> {
    let url = console.parse().map_err(|error| Failure::new(format!("{console}: {error}")))?;
    let invitation = sample::invitation(&url)?;
    let text = format!(
        "The web application shows keys and usage. Open this link in a browser to set a password for {}; it works \
         once, within 24 hours:\n\n  {}\n",
        sample::ADMIN,
        invitation.url
    );
    invitation.deliver(&mut Admin::open(&DataDir::open(data)?)?, &text).await
}

/// Listens for signals and returns a future that completes on SIGTERM or SIGINT.
fn shutdown() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = Signals::new()?;
    Ok(async move {
        let signal = if signals.next().await == Exit::Terminated { "SIGTERM" } else { "SIGINT" };
        info!("{signal}: stopping");
    })
}
