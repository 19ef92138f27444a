//! The admin listener: health checks for load balancers and containers, metrics, and the version. It has a
//! thread of its own, so that a busy server still answers.

mod connections;
mod disk;
mod health;
mod metrics;
mod node;
mod process;
mod routes;
mod text_format;

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, info};

pub use self::connections::CONNECTIONS_MAX;
pub use self::node::{Monitored, Running};
use super::socket::Endpoint;
use crate::failure::Failure;
use crate::runtime;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the source, if the build sets it.
const COMMIT: Option<&str> = option_env!("ENRICH_COMMIT");

/// The running admin listener. It stops when it is dropped.
pub struct AdminListener {
    _stop: DropGuard,
}

impl AdminListener {
    /// Listens and starts the thread.
    pub fn start(endpoint: Endpoint, node: Arc<Monitored>) -> Result<Self, Failure> {
        let cannot_start = |e: io::Error| Failure::new(format!("cannot start the admin listener: {e}"));
        let listener = endpoint.into_listener()?;
        let url = format!("http://{}", listener.local_addr().map_err(cannot_start)?);
        let (runtime, stop) = (runtime::single_threaded()?, CancellationToken::new());
        let stopped = stop.clone();
        let run = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let serving = connections::serve(listener, routes::router(node));
                        stopped.run_until_cancelled(serving).await;
                    }
                    Err(error) => error!(%error, "cannot start the admin listener"),
                }
            });
            // A check of a disk that does not respond never ends.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("admin".to_owned()).spawn(run).map_err(cannot_start)?;
        info!(%url, "admin listener");
        Ok(Self { _stop: stop.drop_guard() })
    }
}
