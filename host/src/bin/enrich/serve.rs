//! `enrich serve`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use enrich_host::patience::{PersistentCredits, TimelyResolver};
use enrich_host::{Services, SystemArrivals, tls};
use enrich_lib::drive::Service;
use enrich_lib::email::EmailPolicy;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::WindowTable;
use enrich_lib::wire;
use enrich_sqlite::{DataDir, Ledger, People, on_a_thread};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::args::{LogFormat, ServeArgs};
use crate::config::{Config, Tls};
use crate::failure::Failure;
use crate::{output, sample};

pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// How often the stores take over what other processes changed: several times within the second that is promised.
const TICK: Duration = Duration::from_millis(250);

pub fn run(data: PathBuf, args: &ServeArgs) -> Result<(), Failure> {
    start_log(args.log_format);
    let config = Settings::resolve(args)?;
    let key = if args.sample { make_sample(&data)? } else { None };
    let stores = Stores::open(&DataDir::open(data)?, &config.file)?;
    allow_open_files();
    let runtime = tokio::runtime::Runtime::new().map_err(|e| Failure::new(format!("can't start: {e}")))?;
    runtime.block_on(serve(&config, &stores, key))
}

/// The file and the flags as one: flags win.
struct Settings {
    file: Config,
    listen: SocketAddr,
    tls: Option<Tls>,
}

impl Settings {
    fn resolve(args: &ServeArgs) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let listen = args.listen.or(file.listen).unwrap_or(LISTEN);
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(Tls { cert: cert.clone(), key: key.clone() }),
            _ => file.tls.clone(),
        };
        let plaintext = args.plaintext || file.plaintext;
        if tls.is_none() && !plaintext && !listen.ip().is_loopback() {
            let what = format!(
                "keys and emails would cross the network in the clear: {listen} is not this machine alone"
            );
            return Err(Failure::new(what).advise(
                "--tls-cert and --tls-key serve HTTPS; --plaintext says that a proxy in front ends TLS",
            ));
        }
        Ok(Self { file, listen, tls })
    }
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

struct Stores {
    ledger: Arc<Ledger>,
    people: Arc<People>,
}

impl Stores {
    fn open(dir: &DataDir, config: &Config) -> Result<Self, Failure> {
        let ledger = Arc::new(Ledger::open(dir, SystemArrivals::now(), on_a_thread)?);
        let people = Arc::new(People::open(dir, config.people.confidence_min, rand::random())?);
        Ok(Self { ledger, people })
    }

    fn service(&self, config: &Config) -> Service {
        let policy = Policy {
            price: config.price(),
            emails: EmailPolicy { providers_allowed: config.providers_allowed() },
            ..Policy::default()
        };
        Service {
            policy: Arc::new(policy),
            keys: self.ledger.clone(),
            windows: Arc::new(WindowTable::default()),
            credits: Arc::new(PersistentCredits {
                credits: self.ledger.clone(),
                deadline: PersistentCredits::DEADLINE,
            }),
            resolver: Arc::new(TimelyResolver {
                resolver: self.people.clone(),
                deadline: config.resolver_deadline(),
            }),
        }
    }

    /// A tick that fails is told once, and made up for by the next one that does not.
    async fn keep_current(&self) {
        let mut is_failing = false;
        let mut interval = tokio::time::interval(TICK);
        loop {
            interval.tick().await;
            let ticked = self.tick().await;
            if let (Err(error), false) = (&ticked, is_failing) {
                warn!(%error, "the stores are not current");
            }
            is_failing = ticked.is_err();
        }
    }

    async fn tick(&self) -> Result<(), enrich_sqlite::StoreError> {
        let (ledger, people) = (self.ledger.tick(SystemArrivals::now()).await, self.people.refresh());
        ledger.and(people)
    }
}

async fn serve(settings: &Settings, stores: &Stores, key: Option<ApiKey>) -> Result<(), Failure> {
    let tls = settings.tls.as_ref().map(|files| tls::load(&files.cert, &files.key)).transpose();
    let tls = tls.map_err(|fault| Failure::new(fault.to_string()))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let services = Services {
        service: stores.service(&settings.file),
        arrivals: Arc::new(SystemArrivals),
        limits: settings.file.limits(),
        tls,
        date_header: true,
    };
    let listener = TcpListener::bind(settings.listen).await.map_err(|e| {
        let failure = Failure::new(format!("can't listen on {}: {e}", settings.listen));
        failure.advise("--listen ADDRESS names another; port 0 takes a free one")
    })?;
    let address = listener.local_addr().map_err(|e| Failure::new(format!("can't listen: {e}")))?;
    let url = format!("{scheme}://{address}");
    let shutdown = shutdown()?;
    info!(%url, "serving");
    if let Some(key) = key {
        show_sample(&url, &key);
    }
    tokio::select! {
        () = enrich_host::run(listener, services, shutdown) => {}
        () = stores.keep_current() => {}
    }
    // What keys were used last, and that nothing is held any more.
    if let Err(error) = stores.tick().await {
        warn!(%error, "the stores were not current at the end");
    }
    info!("stopped");
    Ok(())
}

fn show_sample(url: &str, key: &ApiKey) {
    let (key, path, email) = (key.reveal(), wire::PATH, sample::EMAIL);
    output::line(format!(
        "\nThe workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
         Try it from another terminal:\n\n\
         curl -i {url}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{email}\"}}'\n"
    ));
}

/// Each connection is an open file, and systems start a process with fewer than it may have.
fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "the number of open files stays low, and so does that of connections");
    }
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
