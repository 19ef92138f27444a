//! Instruction counts from valgrind, which do not depend on the load of the machine.
//!
//! `gungraun` compares the total of a run with the previous run or a fixed limit. This module instead counts
//! one request: the difference of two runs, without the functions of SHA-256, for comparison with a
//! checked-in file.
//!
//! Each workload runs twice, the second time with twice as many repetitions. The difference excludes startup
//! and shutdown.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// User instructions by function.
#[derive(Clone, Debug, Default)]
pub struct Count(HashMap<String, f64>);

impl Count {
    /// Returns the number of instructions without those of SHA-256.
    pub fn instructions(&self) -> f64 {
        self.0.values().sum::<f64>() - self.sha256()
    }

    /// Returns whether the functions have names. Packages are stripped of them.
    pub fn has_symbols(&self) -> bool {
        self.0.keys().any(|function| function.contains("enrich"))
    }

    /// Returns the number of instructions in SHA-256. Valgrind does not support the SHA instructions of real
    /// machines, so they are counted separately.
    pub fn sha256(&self) -> f64 {
        let sha256 = self.0.iter().filter(|(function, _)| is_sha256(function));
        sha256.fold(0.0, |sum, (_, instructions)| sum + instructions)
    }

    /// Returns the functions by their own number of instructions, largest first.
    pub fn functions(&self) -> Vec<(&str, f64)> {
        let mut functions: Vec<_> = self.0.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        functions.sort_by(|(a_name, a), (b_name, b)| b.total_cmp(a).then_with(|| a_name.cmp(b_name)));
        functions
    }
}

fn is_sha256(function: &str) -> bool {
    function.contains("sha2::sha256") || function.contains("sha2::block_api")
}

/// Counts the instructions of one repetition, where `command(n)` performs `n` repetitions.
pub fn count_one(command: impl Fn(usize) -> Command, repetitions: usize) -> io::Result<Count> {
    let (once, twice) = (count(&command(repetitions))?, count(&command(2 * repetitions))?);
    let mut difference = twice.0;
    for (function, instructions) in once.0 {
        *difference.entry(function).or_default() -= instructions;
    }
    difference.values_mut().for_each(|instructions| *instructions /= repetitions as f64);
    difference.retain(|_, instructions| *instructions != 0.0);
    Ok(Count(difference))
}

/// Counts the instructions of a whole process.
fn count(command: &Command) -> io::Result<Count> {
    Ok(parse(&profile(command)?))
}

/// Runs a process under callgrind and returns its output file.
fn profile(command: &Command) -> io::Result<String> {
    let out = NamedTempFile::new()?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.path().display()))
        .arg(command.get_program())
        .args(command.get_args())
        .env("RUST_BACKTRACE", "0");
    let output = valgrind.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("valgrind is not installed; on Debian: apt-get install valgrind")
        }
        _ => error,
    })?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    fs::read_to_string(out.path())
}

/// Parses callgrind's file. Cost lines follow each `fn=`. The line after a `calls=` is the cost of the
/// callee.
fn parse(profile: &str) -> Count {
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
