//! The log of `serve`, written to stderr by a separate thread.
//!
//! - `buffer`: the lines that are not written yet
//! - `lines`: the lines of lookups
//! - `writer`: the output, which may fail
//!
//! Lookups never wait for stderr, and its errors never affect a reply. Lines that do not fit into the buffer or cannot be
//! written are dropped, and a later line reports their number.

mod buffer;
mod lines;
mod writer;

use std::env::{self, VarError};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use self::buffer::Buffer;
use self::lines::LookupLines;
use self::writer::Writer;
use crate::failure::Failure;
use crate::values::LogFormat;

/// Maximum time to wait at exit until stderr accepts the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The running log. Dropping it flushes it.
pub struct Log(Arc<Buffer>);

/// Starts the log of this process. Panics on a second call.
pub fn start(log_format: LogFormat) -> Result<Log, Failure> {
    let buffer = Arc::new(Buffer::default());
    let events = fmt::layer()
        .with_writer(buffer.clone())
        // Internal errors would be printed to stderr directly, which panics if stderr is closed.
        .log_internal_errors(false);
    let layer = match log_format {
        LogFormat::Text if is_coloured() => events.boxed(),
        LogFormat::Text => LookupLines::new(log_format, &buffer, events.with_ansi(false)).boxed(),
        LogFormat::Json => LookupLines::new(log_format, &buffer, events.json().flatten_event(true)).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(filter()?).init();
    let (lines, mut writer) = (buffer.clone(), Writer::new(io::stderr(), log_format));
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || lines.drain(|lines, dropped| writer.write(lines, dropped)))
        .map_err(|error| Failure::new(format!("cannot start the log thread: {error}")))?;
    log_panics();
    Ok(Log(buffer))
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIME_MAX);
    }
}

/// Reads `ENRICH_LOG`, which has the syntax of `RUST_LOG`. Without it, the level is `info`.
fn filter() -> Result<EnvFilter, Failure> {
    let invalid = |error: String| {
        let example = "write levels and targets, for example ENRICH_LOG=info,enrich::lookup=debug";
        Failure::usage(format!("ENRICH_LOG is invalid: {error}")).advise(example)
    };
    let text = match env::var("ENRICH_LOG") {
        Ok(text) => text,
        Err(VarError::NotPresent) => String::new(),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let directives: Vec<&str> = text.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    for directive in &directives {
        directive.parse::<Directive>().map_err(|error| invalid(format!("`{directive}`: {error}")))?;
        // A misspelt level is a valid target and would disable all other targets.
        if !directive.contains(['=', '[']) && directive.parse::<LevelFilter>().is_err() {
            return Err(invalid(format!(
                "`{directive}` is not a level (off, error, warn, info, debug, trace)"
            )));
        }
    }
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    filter.parse(directives.join(",")).map_err(|error| invalid(error.to_string()))
}

/// Returns whether to colour the log: on a terminal, unless `NO_COLOR` is present and not empty (<https://no-color.org>).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Installs a panic hook that logs the location of a panic. It omits the message, which could quote a request and which the
/// default hook would print to stderr.
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
