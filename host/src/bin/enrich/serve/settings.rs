//! What `serve` works with: the file and the flags as one.

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
    pub file: Config,
    pub vendors: Vendors,
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
    pub places: Places,
}

impl Settings {
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// Flags win. Reads the file and whatever it names, but for the certificate.
    pub fn resolve(args: &ServeArgs, database: Option<&ServerUrl>) -> Result<Self, Failure> {
        let (file, vendors) = match args.config.as_deref() {
            Some(path) => Config::read(path)?,
            None => {
                let file = Config::default();
                let vendors = Vendors::people(file.resolver_deadline());
                (file, vendors)
            }
        };
        let listen = args.listen.or(file.listen).unwrap_or(Self::LISTEN);
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
        let places = Places::resolve(database, args.windows.as_ref(), &file)?;
        Ok(Self { file, vendors, listen, tls, places })
    }

    /// Reads the certificate, if there is to be one.
    pub fn certificate(&self) -> Result<Option<Arc<CertifiedKey>>, Failure> {
        let read = self.tls.as_ref().map(|files| tls::read(&files.cert, &files.key)).transpose();
        read.map_err(|fault| Failure::new(fault.to_string()))
    }

    /// What differs from `other` and can't be changed while it serves.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let listen = (self.listen != other.listen).then_some("listen");
        let tls = (self.tls.is_some() != other.tls.is_some()).then_some("tls");
        listen.into_iter().chain(tls).chain(self.file.fixed_differences(&other.file)).collect()
    }
}
