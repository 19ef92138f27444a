//! System call counts from strace, of a server in its normal configuration. All requests use one connection, so that the
//! count does not depend on how requests overlap.

use std::fs;
use std::io;

use tempfile::NamedTempFile;

use crate::contender::{Contender, Kind, Launch};
use crate::load::{Load, Pace};
use crate::world::Case;

/// Number of requests in the shorter of two runs.
const REQUESTS: u64 = 1_000;

/// Counts the system calls per request, in all threads. A second run with twice as many requests excludes those of startup
/// and waiting.
pub fn count_one(kind: Kind, launch: &Launch) -> io::Result<f64> {
    let (once, twice) = (count(kind, launch, REQUESTS)?, count(kind, launch, 2 * REQUESTS)?);
    Ok((twice - once) / REQUESTS as f64)
}

/// Counts the system calls of a server for `requests` requests.
fn count(kind: Kind, launch: &Launch, requests: u64) -> io::Result<f64> {
    let out = NamedTempFile::new()?;
    let strace = ["strace", "-f", "-c", "-o", &out.path().to_string_lossy()].map(str::to_owned);
    let server = Contender::start(kind, &Launch { under: strace.to_vec(), ..launch.clone() })?;
    let (addresses, asked) = (server.addresses(), server.requests(Case::Found));
    let load = Load { addresses: &addresses, connections: 1, requests: &asked, status: 200 };
    load.connect()?.run(Pace::Number(requests))?;
    server.end_under()?;
    total(&fs::read_to_string(out.path())?).ok_or_else(|| io::Error::other("strace printed no total"))
}

/// Returns the calls in the last line of strace's table: share of time, seconds, µs per call, calls, errors if there are
/// any.
fn total(table: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_calls_of_all() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n 60.00    0.000013           0        23           read\n\
            ------ ----------- ----------- --------- --------- ----------------\n100.00    0.000033           0      4123         4 total\n";
        assert_eq!(total(table), Some(4_123.0));
    }
}
