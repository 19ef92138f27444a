//! The limit on open files. Each connection uses one, and the stores and the vendors use others.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

use crate::failure::Failure;

/// The files of a server without connections and vendors, and those of each worker thread.
const FILES: usize = 40;
const FILES_OF_WORKER: usize = 4;

/// Raises the soft limit to the hard limit, because systems start processes with a low soft limit. Reserves files
/// for the connections of `other` listeners. Returns the maximum number of connections: `max`, or half of the rest
/// if that is fewer, so that the other half is left for the stores, the vendors and the threads. Fails if it is not
/// enough for these.
pub fn connections_max(max: usize, workers: usize, other: usize) -> Result<usize, Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the soft limit on open files to the hard limit");
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(max) };
    let files = usize::try_from(limit).unwrap_or(usize::MAX);
    let connections = max.min(files.saturating_sub(other) / 2);
    let least = FILES + workers * FILES_OF_WORKER;
    if files - connections < least + other {
        let advice = format!(
            "raise it to {} with `ulimit -n` or with LimitNOFILE= in the systemd unit, or set fewer `workers`",
            2 * least + other
        );
        return Err(Failure::new(format!("the limit on open files, {limit}, is too low")).advise(advice));
    }
    if connections == max {
        return Ok(max);
    }
    let needed = max.saturating_mul(2).saturating_add(other);
    warn!(
        limit,
        connections,
        "the limit on open files allows fewer connections than `connections.max`; raise it to {needed} with `ulimit -n` or \
         with LimitNOFILE= in the systemd unit"
    );
    Ok(connections)
}
