//! The log of `serve`, written to stderr by a separate thread.
//!
//! Lookups never wait for stderr, and its errors never affect a reply. Lines that do not fit into the queue or
//! that stderr refuses are lost, and a metric counts them.

mod filter;
mod format;
mod lines;
mod writer;

use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::format::LogFormat;
use self::lines::LookupLines;
use self::writer::Writer;
use crate::failure::Failure;
use crate::panics;

/// Number of lines that wait for the log thread at most, about 4 MB.
const QUEUE_LINES_MAX: usize = 1 << 14;

/// The running log. Dropping it writes the remaining lines, for a second at most.
#[derive(Debug)]
pub struct Log {
    lost: LostLines,
    _thread: WorkerGuard,
}

/// Starts the log of this process with the filter in `ENRICH_LOG`, and logs panics. Panics on a second call, or
/// if the system cannot start a thread.
///
/// # Errors
///
/// Returns an error if the filter is invalid.
pub fn start(format: LogFormat) -> Result<Log, Failure> {
    let log = start_with(format, is_coloured(), filter::from_environment()?);
    panics::log();
    Ok(log)
}

/// Starts the log of this process for the events that `filter` admits. `is_coloured` colours text. Panics on
/// a second call, or if the system cannot start a thread.
pub fn start_with(format: LogFormat, is_coloured: bool, filter: Targets) -> Log {
    let refused = Arc::default();
    let writer = Writer::new(io::stderr(), Arc::clone(&refused));
    let queue = NonBlockingBuilder::default().buffered_lines_limit(QUEUE_LINES_MAX).thread_name("log");
    let (queue, thread) = queue.finish(writer);
    let lost = LostLines { dropped: queue.error_counter(), refused };
    let events = layer()
        .with_writer(queue.clone())
        // Internal errors would be printed to stderr directly, which panics if stderr is closed.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text if is_coloured => events.boxed(),
        LogFormat::Text => LookupLines::new(format, queue, events.with_ansi(false)).boxed(),
        LogFormat::Json => LookupLines::new(format, queue, events.json().flatten_event(true)).boxed(),
    };
    registry().with(lines).with(filter).init();
    Log { lost, _thread: thread }
}

/// Returns whether to colour the log: on a terminal, unless `NO_COLOR` is present and not empty
/// (<https://no-color.org>).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Log {
    /// Returns a counter of lost lines, which outlives the log.
    pub fn lost_lines(&self) -> LostLines {
        self.lost.clone()
    }
}

/// Counts the lines that did not fit into the queue, or that stderr refused.
#[derive(Clone, Debug)]
pub struct LostLines {
    dropped: ErrorCounter,
    refused: Arc<AtomicU64>,
}

impl LostLines {
    /// Returns the number of lines lost so far.
    pub fn count(&self) -> u64 {
        self.dropped.dropped_lines() as u64 + self.refused.load(Ordering::Relaxed)
    }
}
