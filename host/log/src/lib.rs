//! The log of a server, written to stderr by a separate thread.
//!
//! Lookups never wait for stderr, and its errors never affect a reply. Lines that do not fit into the buffer
//! or cannot be written are dropped, and a later line reports their number.
//!
//! # Layout
//!
//! - `format`: text or JSON
//! - `buffer`: the lines that are not written yet
//! - `lines`: the lines of lookups
//! - `writer`: the output, which may fail

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod buffer;
mod format;
mod lines;
mod writer;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

use crate::buffer::Buffer;
pub use crate::format::Format;
use crate::lines::LookupLines;
use crate::writer::Writer;

/// Maximum time to wait at exit until stderr accepts the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The running log. Dropping it flushes it.
pub struct Log(Arc<Buffer>);

/// Starts the log of this process, for the events that `filter` admits. `is_coloured` colours text. Panics on
/// a second call.
///
/// # Errors
///
/// Returns the system's error if it cannot start the log thread.
pub fn start(format: Format, is_coloured: bool, filter: Targets) -> io::Result<Log> {
    let buffer = Arc::new(Buffer::default());
    let events = layer()
        .with_writer(buffer.clone())
        // Internal errors would be printed to stderr directly, which panics if stderr is closed.
        .log_internal_errors(false);
    let lines = match format {
        Format::Text if is_coloured => events.boxed(),
        Format::Text => LookupLines::new(format, &buffer, events.with_ansi(false)).boxed(),
        Format::Json => LookupLines::new(format, &buffer, events.json().flatten_event(true)).boxed(),
    };
    registry().with(lines).with(filter).init();
    let (unwritten, mut writer) = (buffer.clone(), Writer::new(io::stderr(), format));
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        unwritten.drain(|lines, dropped| unwritten.add_unwritten(writer.write(lines, dropped)));
    })?;
    Ok(Log(buffer))
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
