//! The web application, on a thread of its own, so that a slow page never delays a lookup.

use std::sync::Arc;
use std::{io, thread};

use async_trait::async_trait;
use enrich_console::{Config, OpenAccounts};
use enrich_host::SystemArrivals;
use enrich_node::Node;
use enrich_store::{Accounts, StoreError};
use enrich_vendors::provider::SettingError;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;

use super::rate_limits;
use super::socket::Endpoint;
use crate::failure::Failure;
use crate::listen::Listen;
use crate::public_url::PublicUrl;
use crate::runtime;
use crate::settings::Settings;

/// The running web application. It stops when it is dropped.
pub struct WebApplication {
    pub url: String,
    /// The URL with which links begin.
    link_url: Result<PublicUrl, SettingError>,
    stop: CancellationToken,
    stopped: oneshot::Receiver<()>,
    _guard: DropGuard,
}

/// The parts of the server that [`WebApplication::start`] uses.
pub struct Host<'a> {
    pub settings: &'a Settings,
    pub node: &'a Arc<Node>,
    pub tls: Option<Arc<ServerConfig>>,
    /// The URL at which the API listens.
    pub api: &'a str,
}

/// The accounts of a node.
struct AccountsOf(Arc<Node>);

#[async_trait]
impl OpenAccounts for AccountsOf {
    async fn open(&self) -> Result<Accounts, StoreError> {
        self.0.open_accounts().await
    }
}

impl WebApplication {
    /// Listens and starts the thread.
    pub fn start(endpoint: Endpoint, host: Host<'_>) -> Result<Self, Failure> {
        let Host { settings, node, tls, api } = host;
        let cannot_start = |e: io::Error| Failure::new(format!("cannot start the web application: {e}"));
        let listener = endpoint.into_listener()?;
        let address = listener.local_addr().map_err(cannot_start)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listen = Listen::Address(address);
        let (url, link_url) =
            (settings.config.console.url(scheme, &listen), settings.config.console.link_url(scheme, &listen));
        let config = Config {
            url: url.clone(),
            api_url: settings.config.console.api_url(api),
            is_tls: tls.is_some(),
            client_address: settings.config.client_address(),
            logs_client_address: settings.config.log_client_address,
            windows: rate_limits::port_of_thread(&node.windows, &settings.locations.windows)?,
            now: Arc::new(SystemArrivals::now),
            open: Box::new(AccountsOf(node.clone())),
        };
        let is_socket_shared = matches!(settings.config.console.listen, Some(Listen::Passed(_)));
        let stop = CancellationToken::new();
        let (ended, stopped) = oneshot::channel();
        let runtime = runtime::single_threaded()?;
        let run = {
            let stop = stop.clone();
            move || {
                runtime.block_on(async {
                    match TcpListener::from_std(listener) {
                        Ok(listener) => {
                            let stopped = stop.cancelled();
                            enrich_console::serve(listener, config, tls, is_socket_shared, stopped).await;
                        }
                        Err(error) => error!(%error, "cannot start the web application"),
                    }
                });
                // The receiver is gone if the server failed.
                let _ = ended.send(());
            }
        };
        thread::Builder::new().name("console".to_owned()).spawn(run).map_err(cannot_start)?;
        Ok(Self { url, link_url, _guard: stop.clone().drop_guard(), stop, stopped })
    }

    /// Returns the URL with which links begin. Fails if users could not open it.
    pub fn link_url(&self) -> Result<PublicUrl, SettingError> {
        self.link_url.clone()
    }

    /// Returns a token that stops the web application. Requests in flight are completed.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the web application has stopped.
    pub async fn stopped(self) {
        // The sender is dropped without a message if the thread panicked.
        let _ = self.stopped.await;
    }
}
