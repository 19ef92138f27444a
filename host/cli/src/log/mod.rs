//! The log of `serve`, written to stderr by a separate thread.
//!
//! Lookups never wait for stderr, and its errors never affect a reply. Lines that do not fit into the buffer
//! or cannot be written are dropped, and a later line reports their number.
//!
//! - `format`: text or JSON
//! - `filter`: the events to log
//! - `buffer`: the lines that are not written yet
//! - `lines`: the lines of lookups
//! - `writer`: the output, which may fail

mod buffer;
mod filter;
mod format;
mod lines;
mod writer;

use std::env;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

use self::buffer::Buffer;
pub use self::format::LogFormat;
use self::lines::LookupLines;
use self::writer::Writer;
use crate::failure::Failure;
use crate::panics;

/// Maximum time to wait at exit until stderr accepts the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The running log. Dropping it flushes it.
pub struct Log(Arc<Buffer>);

/// Starts the log of this process with the filter in `ENRICH_LOG`, and logs panics. Panics on a second call.
///
/// # Errors
///
/// Returns an error if the filter is invalid, or if the system cannot start the log thread.
pub fn start(format: LogFormat) -> Result<Log, Failure> {
    let log = start_with(format, is_coloured(), filter::from_environment()?)
        .map_err(|error| Failure::new(format!("cannot start the log thread: {error}")))?;
    panics::log();
    Ok(log)
}

/// Starts the log of this process for the events that `filter` admits. `is_coloured` colours text. Panics on
/// a second call.
///
/// # Errors
///
/// Returns the system's error if it cannot start the log thread.
pub fn start_with(format: LogFormat, is_coloured: bool, filter: Targets) -> io::Result<Log> {
    let buffer = Arc::new(Buffer::default());
    let events = layer()
        .with_writer(buffer.clone())
        // Internal errors would be printed to stderr directly, which panics if stderr is closed.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text if is_coloured => events.boxed(),
        LogFormat::Text => LookupLines::new(format, &buffer, events.with_ansi(false)).boxed(),
        LogFormat::Json => LookupLines::new(format, &buffer, events.json().flatten_event(true)).boxed(),
    };
    registry().with(lines).with(filter).init();
    let (unwritten, mut writer) = (buffer.clone(), Writer::new(io::stderr(), format));
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        unwritten.drain(|lines, dropped| unwritten.add_unwritten(writer.write(lines, dropped)));
    })?;
    Ok(Log(buffer))
}

/// Returns whether to colour the log: on a terminal, unless `NO_COLOR` is present and not empty
/// (<https://no-color.org>).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Log {
    /// Returns a counter of lost lines, which outlives the log.
    pub fn dropped_lines(&self) -> DroppedLines {
        DroppedLines(self.0.clone())
    }
}

/// Counts the lines that did not fit into the buffer, or that stderr did not accept.
#[derive(Clone)]
pub struct DroppedLines(Arc<Buffer>);

impl DroppedLines {
    /// Returns the number of lines lost so far.
    pub fn count(&self) -> u64 {
        self.0.dropped()
    }
}

impl fmt::Debug for DroppedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DroppedLines").field(&self.count()).finish()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIME_MAX);
    }
}
