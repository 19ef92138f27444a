//! Instructions, counted by valgrind: the same on a machine that is busy as on one that is not.
//!
//! What a process does before and after is taken away by running it twice, the second time with twice as much to do.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// User instructions by the function that they are of.
#[derive(Clone, Debug, Default)]
pub struct Count(HashMap<String, f64>);

impl Count {
    /// All but SHA-256's.
    pub fn instructions(&self) -> f64 {
        self.0.values().sum::<f64>() - self.sha256()
    }

    /// SHA-256's: valgrind has not the instructions for it that machines have, so it is counted apart.
    pub fn sha256(&self) -> f64 {
        let sha256 = self.0.iter().filter(|(function, _)| is_sha256(function));
        sha256.fold(0.0, |sum, (_, instructions)| sum + instructions)
    }

    /// The functions that have most of them themselves.
    pub fn functions(&self) -> Vec<(&str, f64)> {
        let mut functions: Vec<_> = self.0.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        functions.sort_by(|(a_name, a), (b_name, b)| b.total_cmp(a).then_with(|| a_name.cmp(b_name)));
        functions
    }
}

fn is_sha256(function: &str) -> bool {
    function.contains("sha2::sha256") || function.contains("sha2::block_api")
}

/// The instructions of doing something once, where `command(n)` does it `n` times.
pub fn count_one(command: impl Fn(usize) -> Command, times: usize) -> io::Result<Count> {
    let (once, twice) = (count(&command(times))?, count(&command(2 * times))?);
    let mut difference = twice.0;
    for (function, instructions) in once.0 {
        *difference.entry(function).or_default() -= instructions;
    }
    difference.values_mut().for_each(|instructions| *instructions /= times as f64);
    difference.retain(|_, instructions| *instructions != 0.0);
    Ok(Count(difference))
}

/// The instructions of a whole process.
fn count(command: &Command) -> io::Result<Count> {
    let out = NamedTempFile::new()?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.path().display()))
        .arg(command.get_program())
        .args(command.get_args())
        .env("RUST_BACKTRACE", "0");
    let done = valgrind.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("valgrind is missing: on Debian, apt-get install valgrind")
        }
        _ => error,
    })?;
    if !done.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    Ok(read(&fs::read_to_string(out.path())?))
}

/// Reads callgrind's file: after each `fn=` follow lines of costs, and after a `calls=` one line that is the callee's.
fn read(profile: &str) -> Count {
    let mut count = Count::default();
    let mut function = String::new();
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name.to_owned();
        } else if line.starts_with("calls=") {
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit())
            && let Some(cost) = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok())
        {
            *count.0.entry(function.clone()).or_default() += cost;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_its_own_instructions_and_not_those_of_what_it_calls() {
        let profile = "version: 1\npositions: line\nevents: Ir\nsummary: 1130\n\nob=/bin/x\nfl=???\nfn=main\n0 20\n\
            cob=/bin/x\ncfn=sha2::sha256::soft::compress\ncalls=2 0\n0 1000\n0 10\n\n\
            fn=sha2::sha256::soft::compress\n0 1000\n\nfn=main\nfi=other.rs\n7 100\n\ntotals: 1130\n";
        let count = read(profile);
        assert_eq!((count.instructions(), count.sha256()), (130.0, 1000.0));
        assert_eq!(count.functions()[1], ("main", 130.0));
    }
}
