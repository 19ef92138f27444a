//! SIGHUP: what can change while it serves is taken anew, whole or not at all.

use std::sync::Arc;

use enrich_host::swap::Swap;
use enrich_lib::ports::Resolver;
use enrich_sqlite::People;
use rustls::sign::CertifiedKey;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use super::settings::Settings;
use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::url::ServerUrl;

/// What is served now, and can be swapped for what the files say.
pub struct Reload<'a> {
    args: &'a ServeArgs,
    database: Option<&'a ServerUrl>,
    /// From the start: what can't change since then needs a restart.
    settings: &'a Settings,
    people: &'a Arc<People>,
    resolver: Arc<Swap<dyn Resolver>>,
    certificate: Option<Arc<Swap<CertifiedKey>>>,
    hangups: Signal,
}

impl<'a> Reload<'a> {
    /// Begins with what the files said at the start. From here on a SIGHUP ends no process.
    pub fn new(
        args: &'a ServeArgs,
        database: Option<&'a ServerUrl>,
        settings: &'a Settings,
        people: &'a Arc<People>,
    ) -> Result<Self, Failure> {
        let hangups = signal(SignalKind::hangup())
            .map_err(|e| Failure::new(format!("can't listen for signals: {e}")))?;
        let resolver = Arc::new(Swap::new(settings.vendors.resolver(people)));
        let certificate = settings.certificate()?.map(|certificate| Arc::new(Swap::new(certificate)));
        Ok(Self { args, database, settings, people, resolver, certificate, hangups })
    }

    pub fn resolver(&self) -> Arc<dyn Resolver> {
        self.resolver.clone()
    }

    pub fn certificate(&self) -> Option<Arc<Swap<CertifiedKey>>> {
        self.certificate.clone()
    }

    /// Never ends.
    pub async fn keep_current(mut self) {
        while self.hangups.recv().await.is_some() {
            match self.take_anew() {
                Ok(fixed) if fixed.is_empty() => info!("SIGHUP: the settings are taken anew"),
                Ok(fixed) => {
                    info!("SIGHUP: the settings are taken anew");
                    warn!(settings = fixed.join(", "), "SIGHUP: these have changed and need a restart");
                }
                Err(Failure { what, .. }) => {
                    error!(fault = what, "SIGHUP: the settings are refused, and the old ones stay");
                }
            }
        }
        std::future::pending().await
    }

    /// What has changed and needs a restart. All is read before any of it is swapped.
    fn take_anew(&self) -> Result<Vec<&'static str>, Failure> {
        let settings = Settings::resolve(self.args, self.database)?;
        let certificate = settings.certificate()?;
        self.resolver.swap(settings.vendors.resolver(self.people));
        if let (Some(current), Some(certificate)) = (&self.certificate, certificate) {
            current.swap(certificate);
        }
        Ok(settings.fixed_differences(self.settings))
    }
}
