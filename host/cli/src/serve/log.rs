//! The log of `serve`: its filter, its format and the panics.

use std::env::{self, VarError};
use std::io::{self, IsTerminal};
use std::thread;

use enrich_log::{Format, Log};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::failure::Failure;
use crate::values::LogFormat;

/// Starts the log of this process. Panics on a second call.
pub fn start(log_format: LogFormat) -> Result<Log, Failure> {
    let format = match log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    let log = enrich_log::start(format, is_coloured(), filter()?)
        .map_err(|error| Failure::new(format!("cannot start the log thread: {error}")))?;
    log_panics();
    Ok(log)
}

/// Reads `ENRICH_LOG`: levels and `TARGET=LEVEL`, separated by commas. Without it, the level is `info`.
fn filter() -> Result<Targets, Failure> {
    let invalid = |error: String| {
        let example = "write levels and targets, for example ENRICH_LOG=info,enrich::lookup=debug";
        Failure::usage(format!("ENRICH_LOG is invalid: {error}")).advise(example)
    };
    let text = match env::var("ENRICH_LOG") {
        Ok(text) => text,
        Err(VarError::NotPresent) => String::new(),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let mut directives = text.split(',').map(str::trim).filter(|text| !text.is_empty()).peekable();
    if directives.peek().is_none() {
        return Ok(Targets::new().with_default(LevelFilter::INFO));
    }
    let mut filter = Targets::new();
    for directive in directives {
        let (target, level) = directive.split_once('=').map_or((None, directive), |(t, l)| (Some(t), l));
        let level: LevelFilter = level.parse().map_err(|_| {
            invalid(format!("`{level}` is not a level (off, error, warn, info, debug, trace)"))
        })?;
        filter = match target {
            None => filter.with_default(level),
            Some("") => return Err(invalid(format!("`{directive}` has no target"))),
            Some(target) => filter.with_target(target, level),
        };
    }
    Ok(filter)
}

/// Returns whether to colour the log: on a terminal, unless `NO_COLOR` is present and not empty
/// (<https://no-color.org>).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Installs a panic hook that logs the location of a panic. It omits the message, which could quote a request
/// and which the default hook would print to stderr.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(tracing::field::display);
        let thread = thread::current();
        tracing::error!(target: "enrich::panic", thread = thread.name(), location, "a thread panicked");
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Environment variable that is set in the process that panics.
    const PANICS: &str = "ENRICH_TEST_PANICS";

    #[test]
    fn logs_a_panic_without_its_message() {
        if env::var_os(PANICS).is_some() {
            let _log = start(LogFormat::Text).unwrap();
            let thread = thread::Builder::new().name("worker-7".to_owned());
            assert!(thread.spawn(|| panic!("cannot look up {}", "ada@gmail.com")).unwrap().join().is_err());
            return;
        }
        let test = "serve::log::tests::logs_a_panic_without_its_message";
        let ran = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(PANICS, "yes")
            .output()
            .unwrap();
        let [stdout, stderr] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(ran.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
        for part in ["ERROR enrich::panic: a thread panicked", "thread=\"worker-7\"", "serve/log.rs:"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        assert!(!(stdout + &stderr).contains("ada"));
    }
}
