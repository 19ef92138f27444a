//! SIGHUP: reads the settings again and replaces all settings that can change while the server runs, or none.
//!
//! A separate thread reads the files. A read that hangs (a FIFO, an unreachable file server) delays neither
//! new connections nor the shutdown, and the process exits without waiting for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use enrich_host::swap::Swap;
use enrich_node::Node;
use rustls::sign::CertifiedKey;
use tokio::signal::unix::Signal;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::failure::Failure;
use crate::settings::{Layers, Settings};

/// Timeout for reading all files. A thread whose read hangs keeps running; its result is dropped.
const READ_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of threads whose reads hang. At this number, further reloads fail.
const HANGING_MAX: usize = 8;

/// The current certificate, and the sources to read the settings again.
pub struct Reload<'a> {
    layers: &'a Layers,
    /// The settings at startup. A reload warns about changes to settings that need a restart.
    settings: &'a Settings,
    node: &'a Node,
    certificate: Option<Arc<Swap<Arc<CertifiedKey>>>>,
    hangups: Signal,
    /// False if the last reload failed.
    is_reloaded: &'a AtomicBool,
    readers: Arc<Semaphore>,
}

impl<'a> Reload<'a> {
    /// Starts with the settings at startup. `hangups` may have received a SIGHUP already, which then reloads
    /// them.
    pub fn new(
        layers: &'a Layers,
        settings: &'a Settings,
        node: &'a Node,
        hangups: Signal,
        is_reloaded: &'a AtomicBool,
    ) -> Self {
        let certificate = settings.certificate.clone().map(|certificate| Arc::new(Swap::new(certificate)));
        let readers = Arc::new(Semaphore::new(HANGING_MAX));
        Self { layers, settings, node, certificate, hangups, is_reloaded, readers }
    }

    pub fn certificate(&self) -> Option<Arc<Swap<Arc<CertifiedKey>>>> {
        self.certificate.clone()
    }

    /// Reloads the settings on each SIGHUP. Never returns.
    pub async fn keep_current(mut self) {
        while self.hangups.recv().await.is_some() {
            let read = self.read().await;
            self.is_reloaded.store(read.is_ok(), Ordering::Relaxed);
            match read {
                Ok(settings) => self.replace(&settings),
                Err(Failure { what, .. }) => {
                    error!(
                        error = what.replace('\n', "; "),
                        "configuration not reloaded; the previous configuration stays in use"
                    );
                }
            }
        }
        std::future::pending().await
    }

    /// Reads all files on a separate thread. Fails after [`READ_TIME_MAX`].
    async fn read(&self) -> Result<Settings, Failure> {
        let reader = self.readers.clone().try_acquire_owned().map_err(|_| {
            let what = format!("{HANGING_MAX} earlier reloads are still reading files; restart the server");
            Failure::new(what)
        })?;
        let layers = self.layers.clone();
        let (send, read) = oneshot::channel();
        let on_thread = move || {
            // The receiver is gone after the deadline.
            let _ = send.send(Settings::resolve(&layers));
            drop(reader);
        };
        let started = thread::Builder::new().name("reload".to_owned()).spawn(on_thread);
        started.map_err(|e| Failure::new(format!("cannot start a thread to read the settings: {e}")))?;
        match timeout(READ_TIME_MAX, read).await {
            Ok(Ok(settings)) => Ok(settings?),
            Ok(Err(_)) => Err(Failure::new("reading the settings panicked")),
            Err(_) => {
                let what =
                    format!("the settings and the files in them were not read within {READ_TIME_MAX:?}");
                Err(Failure::new(what))
            }
        }
    }

    fn replace(&self, settings: &Settings) {
        self.node.replace_sources(&settings.sources);
        if let (Some(current), Some(certificate)) = (&self.certificate, &settings.certificate) {
            current.store(certificate.clone());
        }
        info!("configuration reloaded");
        settings.log_warnings();
        let fixed = settings.fixed_differences(self.settings);
        if !fixed.is_empty() {
            warn!(settings = fixed.join(", "), "these changed settings need a restart");
        }
    }
}
