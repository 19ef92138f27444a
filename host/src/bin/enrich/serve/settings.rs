//! What `serve` works with: the file, the flags and the environment as one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use enrich_host::tls;
use enrich_host::vendors::Vendors;
use rustls::sign::CertifiedKey;

use super::places::Places;
use crate::args::ServeArgs;
use crate::config::{Config, Reading, Tls};
use crate::failure::Failure;
use crate::url::ServerUrl;

/// What the command line and the environment say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub database: Option<ServerUrl>,
    pub args: ServeArgs,
}

pub struct Settings {
    pub config: Config,
    pub vendors: Vendors,
    pub listen: SocketAddr,
    pub places: Places,
    pub certificate: Option<Arc<CertifiedKey>>,
    /// What the operator ought to change, although it can be served.
    pub warnings: Vec<String>,
}

impl Settings {
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// Reads the file and all files that it names. `reading` has the one that is being read.
    pub fn resolve(given: &Given, reading: &Reading) -> Result<Self, Failure> {
        let Given { database, args } = given;
        let (config, vendors) = match args.config.as_deref() {
            Some(path) => Config::read(path, reading, |file| merge(args, file))?,
            None => {
                let mut config = Config::default();
                merge(args, &mut config);
                let vendors = Vendors::people(config.resolver_deadline());
                (config, vendors)
            }
        };
        let listen = config.listen.unwrap_or(Self::LISTEN);
        if config.tls.is_none() && !config.plaintext && !listen.ip().is_loopback() {
            let what = format!(
                "keys and emails would cross the network in the clear: {listen} is not this machine alone"
            );
            return Err(Failure::new(what).advise(
                "--tls-cert and --tls-key serve HTTPS; --plaintext says that a proxy in front ends TLS",
            ));
        }
        let places = Places::resolve(database.as_ref(), args.windows.as_ref(), &config, reading)?;
        let mut warnings = Vec::new();
        let certificate = match &config.tls {
            Some(Tls { cert, key }) => {
                let certified = tls::read(cert, key, |file| reading.begin(file));
                let certified = certified.map_err(|fault| Failure::new(fault.to_string()))?;
                warnings.extend(tls::warnings(cert, key, &certified, SystemTime::now()));
                Some(certified)
            }
            None => None,
        };
        Ok(Self { config, vendors, listen, places, certificate, warnings })
    }

    pub fn log_warnings(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// What differs from `other` and can't be changed while it serves.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let listen = (self.listen != other.listen).then_some("listen");
        let tls = (self.config.tls.is_some() != other.config.tls.is_some()).then_some("tls");
        listen.into_iter().chain(tls).chain(self.config.fixed_differences(&other.config)).collect()
    }
}

/// Flags and variables win over the file.
fn merge(args: &ServeArgs, file: &mut Config) {
    file.listen = args.listen.or(file.listen);
    file.plaintext |= args.plaintext;
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        file.tls = Some(Tls { cert: cert.clone(), key: key.clone() });
    }
    file.price.found = args.price_found.unwrap_or(file.price.found);
    file.price.not_found = args.price_not_found.unwrap_or(file.price.not_found);
    file.credits.durability = args.credits_durability.unwrap_or(file.credits.durability);
    file.people.confidence_min = args.confidence_min.unwrap_or(file.people.confidence_min);
    file.people.index = args.people_index.unwrap_or(file.people.index);
    file.resolver.deadline_ms = args.deadline_ms.unwrap_or(file.resolver.deadline_ms);
}
