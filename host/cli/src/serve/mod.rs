//! `enrich serve`

mod admin;
mod console;
mod machine;
mod open_files;
mod rate_limits;
mod reload;
mod sample;
mod service_manager;
mod socket;
mod stores;

use std::net::SocketAddr;
use std::sync::Arc;

use enrich_host::workers::Workers;
use enrich_host::{Services, SystemArrivals, tls};
use enrich_lib::lookup::Policy;
use enrich_node::{Node, NodeError};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind};
use tracing::{error, info};

use self::admin::{AdminListener, Monitored, Running};
use self::console::{Host, WebApplication};
use self::reload::Reload;
use self::sample::Sample;
use self::socket::{Endpoint, PassedSockets};
use crate::failure::{Exit, Failure};
use crate::listen::Listen;
use crate::settings::{Layers, SAMPLE_CONSOLE, Settings};
use crate::signals::{self, Signals};
use crate::{log, output, runtime};

pub fn run(layers: &Layers, sample: bool) -> Result<(), Failure> {
    let mut passed = PassedSockets::take();
    // This thread accepts connections and keeps the stores current. The workers serve the connections.
    let runtime = runtime::single_threaded()?;
    // Before anything is read: a SIGHUP during the start takes effect after it.
    let hangups = {
        let _runtime = runtime.enter();
        signals::listen(SignalKind::hangup())?
    };
    let settings = Settings::resolve_at_start(layers)?;
    let log = log::start(settings.config.log_format)?;
    settings.log_warnings();
    let data = &settings.config.data;
    let api = Endpoint::new(&settings.config.listen, "listen", &mut passed)?;
    let console = console_endpoint(sample, &settings, &mut passed)?;
    let admin = settings.config.admin.listen.as_ref();
    let admin = admin.map(|listen| Endpoint::new(listen, "admin.listen", &mut passed)).transpose()?;
    for (setting, endpoint) in [("listen", Some(&api)), ("console.listen", console.as_ref())] {
        if let Some(address) = endpoint.and_then(Endpoint::listening) {
            settings.check_passed(setting, address)?;
        }
    }
    let sample = match (sample, &settings.locations.database) {
        (false, _) => None,
        (true, None) => Some(Sample::create(data.clone())?),
        (true, Some(_)) => {
            return Err(Failure::usage("--sample creates a data directory, which `database` replaces")
                .advise("remove --database, ENRICH_DATABASE or the setting"));
        }
    };
    let count = settings.config.workers();
    let of_console = console.as_ref().map_or(0, |_| enrich_console::CONNECTIONS_MAX);
    let other = of_console + admin.as_ref().map_or(0, |_| admin::CONNECTIONS_MAX);
    let connections_max = open_files::connections_max(settings.config.connections.max, count.get(), other)?;
    let workers =
        Workers::start(count).map_err(|e| Failure::new(format!("cannot start the worker threads: {e}")))?;
    runtime.block_on(async {
        let monitored = Arc::new(Monitored::new(settings.locations.people.data(), log.lost_lines()));
        // Before the stores, because checking the files after a crash takes minutes if there are many people.
        let _admin = admin.map(|endpoint| AdminListener::start(endpoint, monitored.clone())).transpose()?;
        let endpoints = Endpoints { api, console, connections_max, hangups };
        let node = Arc::new(stores::open(&settings, monitored.vendors.clone()).await?);
        serve(layers, &settings, node, &workers, endpoints, sample, &monitored).await
    })
}

/// The setting of the web application's address.
const CONSOLE: &str = "console.listen";

/// The sockets of the lookup API and the web application, the limit on connections, and the signal that
/// reloads the settings.
struct Endpoints {
    api: Endpoint,
    console: Option<Endpoint>,
    connections_max: usize,
    hangups: Signal,
}

/// Returns the endpoint of the web application, whose address is free, or `None` if there is no web
/// application. The sample has one unless its port is in use.
fn console_endpoint(
    is_sample: bool,
    settings: &Settings,
    passed: &mut PassedSockets,
) -> Result<Option<Endpoint>, Failure> {
    if let Some(listen) = &settings.config.console.listen {
        let endpoint = Endpoint::new(listen, CONSOLE, passed)?;
        endpoint.check()?;
        return Ok(Some(endpoint));
    }
    if !is_sample {
        return Ok(None);
    }
    // Servers on free ports must not compete for one port.
    let is_free_port = settings.config.listen.address().is_some_and(|address| address.port() == 0);
    let port = if is_free_port { 0 } else { SAMPLE_CONSOLE.port() };
    let listen = Listen::Address(SocketAddr::new(SAMPLE_CONSOLE.ip(), port));
    let endpoint = Endpoint::new(&listen, CONSOLE, passed)?;
    if let Err(failure) = endpoint.check() {
        output::remark(format!(
            "the web application does not start: {}; choose another address with {}",
            failure.what, CONSOLE
        ));
        return Ok(None);
    }
    Ok(Some(endpoint))
}

async fn serve(
    layers: &Layers,
    settings: &Settings,
    node: Arc<Node>,
    workers: &Workers,
    endpoints: Endpoints,
    mut sample: Option<Sample>,
    monitored: &Monitored,
) -> Result<(), Failure> {
    let Endpoints { api, console, connections_max, hangups } = endpoints;
    let reload = Reload::new(layers, settings, &node, hangups, &monitored.is_reloaded);
    let tls = reload.certificate().map(tls::config);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let cannot_listen = |e| Failure::new(format!("cannot listen: {e}"));
    let listener = TcpListener::from_std(api.into_listener()?).map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let url = format!("{scheme}://{address}");
    let mut signals = Signals::new()?;
    let console = console.map(|endpoint| {
        let tls = reload.certificate().map(tls::config);
        WebApplication::start(endpoint, Host { settings, node: &node, tls, api: &url })
    });
    let console = console.transpose()?;
    if let (Some(sample), Some(console)) = (&mut sample, &console) {
        sample.invite(console).await?;
    }
    let config = &settings.config;
    let mut policy = Policy::default();
    policy.price = config.price();
    policy.emails = config.email_policy();
    policy.shows_credits = config.credits.show_available;
    let services = Services {
        service: node.service(policy),
        arrivals: Arc::new(SystemArrivals),
        limits: config.limits(connections_max),
        client_address: config.log_client_address.then(|| config.client_address()),
        tls,
        observer: node.observer(config.admin.listen.as_ref().map(|_| monitored.lookups.clone())),
        connections: monitored.connections.clone(),
        is_socket_shared: matches!(settings.config.listen, Listen::Passed(_)),
        date_header: true,
    };
    info!(
        accounts = settings.locations.accounts(&settings.config.data),
        windows = %settings.locations.windows,
        people = %settings.locations.people,
        "stores"
    );
    if let Some(console) = &console {
        info!(url = %console.url, "web application");
    }
    info!(%url, "serving");
    node.keep_house(config.keep_spends());
    let certificate = reload.certificate();
    monitored.set_started(Running { node: node.clone(), connections_max, certificate });
    service_manager::notify(NotifyState::Ready);
    if let Some(sample) = sample {
        sample.show(&url).await?;
    }
    let shutdown_delay = config.shutdown_delay();
    let stop_console = console.as_ref().map(WebApplication::stop_token);
    let shutdown = async {
        let signal = if signals.next().await == Exit::Terminated { "SIGTERM" } else { "SIGINT" };
        info!("{signal}: stopping");
        service_manager::notify(NotifyState::Stopping);
        let hurry = async {
            signals.next().await;
        };
        node.drain(shutdown_delay, hurry).await;
        if let Some(stop) = stop_console {
            stop.cancel();
        }
    };
    let serving = async {
        tokio::select! {
            () = workers.run(listener, services, shutdown) => {}
            () = reload.keep_current() => {}
        }
        if let Some(console) = console {
            console.stopped().await;
        }
    };
    let ended = node.run(serving).await;
    ended.inspect_err(|error| error!(reason = %error, "stopped by an error")).map_err(
        |error| match error {
            NodeError::Store(error) => error.into(),
            NodeError::NotClosed => Failure::new(error.to_string()),
        },
    )?;
    info!("stopped");
    Ok(())
}
