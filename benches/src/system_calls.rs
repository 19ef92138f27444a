//! System calls, counted by strace: of a server as it runs in earnest, asked over one connection, so that nothing depends on
//! how requests meet.

use std::fs;
use std::io;

use tempfile::NamedTempFile;

use crate::contender::{Contender, Kind, Launch};
use crate::load::{Load, Pace};
use crate::world::Case;

/// How many requests there are in the shorter of two runs.
const REQUESTS: u64 = 1_000;

/// The system calls of a request, in all threads: what starting and waiting take is taken away by asking twice as often.
pub fn count_one(kind: Kind, launch: &Launch) -> io::Result<f64> {
    let (once, twice) = (count(kind, launch, REQUESTS)?, count(kind, launch, 2 * REQUESTS)?);
    Ok((twice - once) / REQUESTS as f64)
}

/// The system calls of a server that is asked so often.
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

/// The calls in the last line of strace's table: the part of the time, seconds, µs a call, calls, errors if there are any.
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
