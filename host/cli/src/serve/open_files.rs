//! The limit on open files. Each connection uses one; this module reserves files for the stores and the vendors.

use std::fs;
use std::num::NonZeroUsize;

use enrich_node::sources::Sources;
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

use super::admin::CONNECTIONS_MAX as ADMIN_CONNECTIONS_MAX;
use crate::failure::Failure;
use crate::settings::{Settings, StoreLocations, WindowStore};

/// Files that every server needs: stdio, the main runtime, the stores in the data directory.
const START_FILES: usize = 24;
/// Files of one worker's runtime.
const WORKER_FILES: usize = 4;
/// Files that are open for a short time: in a reload, a refresh after an import or a DNS query, and connections that are
/// being replaced at the limit.
const SPARE_FILES: usize = 16;
/// Connections of the web application, and its stores.
const CONSOLE_FILES: usize = enrich_console::CONNECTIONS_MAX + 8;
/// Connections of the admin listener, its runtime, and its check of Redis and of the disk.
const ADMIN_FILES: usize = ADMIN_CONNECTIONS_MAX + 8;
/// Connections to Redis: the current one, its replacement, and the one that compares the clocks.
const REDIS_FILES: usize = 3;
/// The server refuses to start with fewer connections.
const CONNECTIONS_MIN: usize = 4;

/// Raises the soft limit to the hard limit, because systems start processes with a low soft limit. Fails if the limit is too
/// low to start.
pub fn raise_limit(workers: NonZeroUsize) -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the soft limit on open files to the hard limit");
    }
    let needed = START_FILES.saturating_add(workers.get().saturating_mul(WORKER_FILES));
    check(needed.saturating_add(SPARE_FILES))
}

/// Returns the maximum number of connections: `connections.max`, or fewer if the limit on open files leaves fewer. Call
/// this once the stores and the listener are open.
pub fn connections_max(settings: &Settings, has_console: bool) -> Result<usize, Failure> {
    let max = settings.config.connections.max;
    let Some(limit) = limit() else { return Ok(max) };
    let console = if has_console { CONSOLE_FILES } else { 0 };
    let admin = settings.config.admin.listen.as_ref().map_or(0, |_| ADMIN_FILES);
    let reserved = open_files()
        + vendor_files(&settings.sources)
        + store_files(&settings.locations)
        + console
        + admin
        + SPARE_FILES;
    check(reserved)?;
    let left = limit - reserved;
    if left >= max {
        return Ok(max);
    }
    let needed = reserved.saturating_add(max);
    warn!(
        limit,
        reserved,
        connections = left,
        "the limit on open files allows fewer connections than `connections.max`; raise it to {needed} with `ulimit -n` or \
         with LimitNOFILE= in the systemd unit"
    );
    Ok(left)
}

/// Fails if the limit leaves fewer than [`CONNECTIONS_MIN`] connections beside `reserved` files.
fn check(reserved: usize) -> Result<(), Failure> {
    let needed = reserved.saturating_add(CONNECTIONS_MIN);
    match limit() {
        Some(limit) if limit < needed => {
            let what = format!(
                "the limit on open files is {limit}; the server needs {needed} for the stores, the vendors and \
                 {CONNECTIONS_MIN} connections"
            );
            Err(Failure::new(what).advise(
                "raise it with `ulimit -n` or LimitNOFILE= in the systemd unit, or use fewer --workers and a lower \
                 `limits.concurrency` of vendors",
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the soft limit, or `None` if it is unlimited.
fn limit() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

fn open_files() -> usize {
    fs::read_dir("/dev/fd").map_or(START_FILES, Iterator::count)
}

fn vendor_files(sources: &Sources) -> usize {
    sources.vendors().map(|vendor| vendor.policy.concurrency).sum()
}

fn store_files(locations: &StoreLocations) -> usize {
    let redis = if locations.windows == WindowStore::Memory { 0 } else { REDIS_FILES };
    let postgres =
        locations.database.as_ref().map_or(0, |_| enrich_postgres::Config::default().connections());
    redis + postgres
}
