//! System call counts from strace, of a server in its normal configuration. All requests use one connection,
//! so that the count does not depend on how requests overlap.

use std::fs;
use std::io;

use tempfile::NamedTempFile;

use crate::dataset::Case;
use crate::load::{Load, Pace};
use crate::server_kind::ServerKind;
use crate::servers::{Launcher, Server};

/// Number of requests in the shorter of two runs.
const REQUESTS: u64 = 1_000;

/// Counts the system calls per request, in all threads. A second run with twice as many requests excludes
/// those of startup and waiting.
pub fn count_one(kind: ServerKind, launcher: &Launcher) -> io::Result<f64> {
    let (once, twice) = (count(kind, launcher, REQUESTS)?, count(kind, launcher, 2 * REQUESTS)?);
    Ok((twice - once) / REQUESTS as f64)
}

/// Counts the system calls of a server for `requests` requests.
fn count(kind: ServerKind, launcher: &Launcher, requests: u64) -> io::Result<f64> {
    let out = NamedTempFile::new()?;
    let strace = ["strace", "-f", "-c", "-o", &out.path().to_string_lossy()].map(str::to_owned);
    let server = Server::start(kind, &Launcher { wrapper: strace.to_vec(), ..launcher.clone() })?;
    let (addresses, payloads) = (server.addresses(), server.requests(Case::Found));
    let load = Load { addresses: &addresses, connections: 1, requests: &payloads, status: 200 };
    load.connect()?.run(Pace::Count(requests))?;
    server.kill_wrapped()?;
    total(&fs::read_to_string(out.path())?)
        .ok_or_else(|| io::Error::other("the output of strace has no total"))
}

/// Returns the calls in the last line of strace's table: share of time, seconds, µs per call, calls, errors
/// if there are any.
fn total(table: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}
