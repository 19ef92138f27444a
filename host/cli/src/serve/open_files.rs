//! The limit on open files. Each connection uses one, and the stores and the vendors use others.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// The server accepts this number of connections under any limit.
const CONNECTIONS_MIN: usize = 4;

/// Raises the soft limit to the hard limit, because systems start processes with a low soft limit. Returns
/// the maximum number of connections: `max`, or half of the limit if that is fewer, so that the other half is
/// left for the stores and the vendors.
pub fn connections_max(max: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the soft limit on open files to the hard limit");
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return max };
    let connections = usize::try_from(limit / 2).unwrap_or(usize::MAX).max(CONNECTIONS_MIN);
    if connections >= max {
        return max;
    }
    let needed = max.saturating_mul(2);
    warn!(
        limit,
        connections,
        "the limit on open files allows fewer connections than `connections.max`; raise it to {needed} with `ulimit -n` or \
         with LimitNOFILE= in the systemd unit"
    );
    connections
}
