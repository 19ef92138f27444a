//! Replacing a running server without a gap: this process listens, and accepts once the other one has stopped.

use std::time::Duration;

use enrich_sqlite::DataDir;
use sd_notify::NotifyState;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::failure::Failure;

/// How long to wait for the other server. A graceful shutdown takes less, if it begins in time.
const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Waits until no other process serves the directory.
pub async fn wait_for_other_server(dir: &DataDir) -> Result<(), Failure> {
    if !dir.is_served() {
        return Ok(());
    }
    info!("waiting for the other server to stop; new connections wait too, so stop it now");
    notify(&[NotifyState::Status("waiting for the other server to stop")]);
    let give_up = Instant::now() + WAIT_MAX;
    while dir.is_served() {
        if Instant::now() > give_up {
            let what = format!("another server still serves {} after {WAIT_MAX:?}", dir.path().display());
            return Err(Failure::new(what).advise("stop it, and start this one again"));
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// Sends a state of the server to systemd, if systemd started it with `Type=notify`.
pub fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "cannot notify the service manager");
    }
}
