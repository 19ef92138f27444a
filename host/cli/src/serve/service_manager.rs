//! Messages to systemd, if it started this process with `Type=notify`.

use sd_notify::NotifyState;
use tracing::warn;

/// Sends a state of the server.
pub fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!(%error, "cannot notify the service manager");
    }
}
