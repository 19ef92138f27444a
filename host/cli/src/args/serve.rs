//! Flags of `enrich serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::BoolishValueParser;

use super::store::StoreArgs;
use crate::console_url::ConsoleUrl;
use crate::failure::Failure;
use crate::listen::{self, Listen};
use crate::number;
use crate::url::ServerUrl;
use crate::values::{CONFIDENCES, LogFormat, PeopleIndex, RESOLVER_DEADLINES_MS};

#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Create sample data and a key if there is no data yet
    ///
    /// Creates 300 invented people and a workspace `demo` with 1,000 credits. Also starts the web application on
    /// 127.0.0.1:8081, unless --console-listen is set.
    #[arg(long)]
    pub sample: bool,
    /// Log format [default: text]
    #[arg(long, value_enum, env = "ENRICH_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Address to listen on [default: 127.0.0.1:8080]
    ///
    /// An address and a port. A port alone means 127.0.0.1. `fd://3` or `fd://NAME` is a listening socket that systemd or another
    /// parent process passes in LISTEN_FDS.
    #[arg(long, value_name = "ADDRESS", env = "ENRICH_LISTEN", value_parser = listen::parse, help_heading = "Network")]
    pub listen: Option<Listen>,
    /// Number of worker threads [default: one per core]
    #[arg(long, value_name = "N", env = "ENRICH_WORKERS", value_parser = number::at_least(NonZeroUsize::MIN..=NonZeroUsize::MAX), help_heading = "Network")]
    pub workers: Option<NonZeroUsize>,
    /// TLS certificate chain (PEM)
    #[arg(
        long,
        value_name = "FILE",
        env = "ENRICH_TLS_CERT",
        requires = "tls_key",
        help_heading = "Network"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate (PEM)
    #[arg(
        long,
        value_name = "FILE",
        env = "ENRICH_TLS_KEY",
        requires = "tls_cert",
        help_heading = "Network"
    )]
    pub tls_key: Option<PathBuf>,
    /// Allow plain HTTP from other machines
    ///
    /// Use it only if a proxy in front of the server terminates TLS.
    #[arg(long, env = "ENRICH_PLAINTEXT", value_parser = BoolishValueParser::new(), help_heading = "Network")]
    pub plaintext: bool,

    /// Serve the web application on this address
    ///
    /// An address and a port, or a passed socket, as for --listen. Without it, there is no web application.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENRICH_CONSOLE_LISTEN",
        value_parser = listen::parse,
        help_heading = "Web application"
    )]
    pub console_listen: Option<Listen>,
    /// URL under which users reach the web application
    ///
    /// Links begin with it. Defaults to the scheme and address of --console-listen.
    #[arg(long, value_name = "URL", env = "ENRICH_CONSOLE_URL", help_heading = "Web application")]
    pub console_url: Option<ConsoleUrl>,

    /// Serve health checks and metrics on this address
    ///
    /// An address and a port, or a passed socket, as for --listen. Plain HTTP without a password: only the monitoring system should
    /// reach it.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENRICH_ADMIN_LISTEN",
        value_parser = listen::parse,
        help_heading = "Monitoring"
    )]
    pub admin_listen: Option<Listen>,

    #[command(flatten)]
    pub store: StoreArgs,
    /// Rate-limit store: `memory` or `redis://HOST`
    ///
    /// Defaults to `memory` with a data directory, and has no default with --database. Several nodes must share one Redis or
    /// Valkey server.
    #[arg(long, value_name = "URL", env = "ENRICH_WINDOWS", hide_env_values = true, help_heading = "Data")]
    pub windows: Option<ServerUrl>,
    /// Certificates to trust for TLS to Redis (PEM)
    ///
    /// Replaces the certificates of the system. The scheme of --windows must be rediss.
    #[arg(long, value_name = "FILE", env = "ENRICH_WINDOWS_CA", help_heading = "Data")]
    pub windows_ca: Option<PathBuf>,
    /// Storage for finding people [default: memory]
    #[arg(long, value_name = "STORAGE", env = "ENRICH_PEOPLE_INDEX", help_heading = "Data")]
    pub people_index: Option<PeopleIndex>,

    /// Price of a match, in credits [default: 1]
    #[arg(long, value_name = "N", env = "ENRICH_PRICE_FOUND", value_parser = number::within(0..=u32::MAX), help_heading = "Lookups")]
    pub price_found: Option<u32>,
    /// Price of a lookup without a match, in credits [default: 0]
    #[arg(long, value_name = "N", env = "ENRICH_PRICE_NOT_FOUND", value_parser = number::within(0..=u32::MAX), help_heading = "Lookups")]
    pub price_not_found: Option<u32>,
    /// Minimum confidence of a match, from 0 to 1 [default: 0.8]
    ///
    /// Applies to the people directory. Vendors have a minimum of their own.
    #[arg(long, value_name = "X", env = "ENRICH_CONFIDENCE_MIN", value_parser = confidence, help_heading = "Lookups")]
    pub confidence_min: Option<f64>,
    /// Deadline for finding a person, in ms [default: 10000]
    ///
    /// At most 20000. It applies to the people directory and all vendors together.
    #[arg(long, value_name = "MS", env = "ENRICH_DEADLINE_MS", value_parser = number::within(RESOLVER_DEADLINES_MS), help_heading = "Lookups")]
    pub deadline_ms: Option<u64>,
}

impl ServeArgs {
    /// Returns the arguments of `enrich serve` without flags: those that its environment variables set.
    pub fn of_environment() -> Result<Self, Failure> {
        #[derive(clap::Parser)]
        struct Environment {
            #[command(flatten)]
            args: ServeArgs,
        }

        match Environment::try_parse_from(["enrich"]) {
            Ok(Environment { args }) => Ok(args),
            Err(error) => Err(Failure::arguments(&error)
                .advise("a variable sets this flag of `enrich serve`; `enrich serve --help` names it")),
        }
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    let confidence = text.parse().ok().filter(|confidence| CONFIDENCES.contains(confidence));
    confidence.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}
