//! What `serve` works with: the file, the flags and the environment as one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use enrich_host::tls;
use enrich_host::vendors::Vendors;
use rustls::sign::CertifiedKey;

use super::places::Places;
use crate::args::ServeArgs;
use crate::config::{Config, Tls};
use crate::failure::Failure;
use crate::url::ServerUrl;

pub struct Settings {
    pub config: Config,
    pub vendors: Vendors,
    pub listen: SocketAddr,
    pub places: Places,
}

impl Settings {
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// Reads the file and whatever it names, but for the certificate.
    pub fn resolve(args: &ServeArgs, database: Option<&ServerUrl>) -> Result<Self, Failure> {
        let (config, vendors) = match args.config.as_deref() {
            Some(path) => Config::read(path, |file| merge(args, file))?,
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
        let places = Places::resolve(database, args.windows.as_ref(), &config)?;
        Ok(Self { config, vendors, listen, places })
    }

    /// Reads the certificate, if there is to be one.
    pub fn certificate(&self) -> Result<Option<Arc<CertifiedKey>>, Failure> {
        let read = self.config.tls.as_ref().map(|files| tls::read(&files.cert, &files.key)).transpose();
        read.map_err(|fault| Failure::usage(fault.to_string()))
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
