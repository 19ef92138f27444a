//! The log of `serve`, written to stderr by a separate thread.
//!
//! Lookups never wait for stderr, and its errors never affect a reply. Threads append lines to a buffer, and the log thread
//! writes them. Lines that do not fit into the buffer or cannot be written are dropped, and a later line reports their number.

use std::env::{self, VarError};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::failure::Failure;
use crate::values::LogFormat;

/// Maximum time to wait at exit until stderr accepts the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The running log. Dropping it flushes it.
pub struct Log(Arc<Buffer>);

/// Starts the log of this process. Panics on a second call.
pub fn start(log_format: LogFormat) -> Result<Log, Failure> {
    let buffer = Arc::new(Buffer::default());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter()?)
        .with_writer(buffer.clone())
        // Internal errors would be printed to stderr directly, which panics if stderr is closed.
        .log_internal_errors(false);
    match log_format {
        LogFormat::Text => log.with_ansi(is_coloured()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
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

/// A buffer of complete lines between the logging threads and the log thread.
#[derive(Default)]
struct Buffer {
    state: Mutex<State>,
    /// Notified when lines arrive and when the last line is written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    /// Lines that did not fit since the last batch.
    dropped: u64,
    is_writing: bool,
}

impl Buffer {
    /// About 16,000 lines. As many again may be in the batch that is being written.
    const BYTES_MAX: usize = 4 << 20;
    /// Capacity to keep after a burst is written.
    const BYTES_KEPT: usize = 64 << 10;

    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.lines.len() + line.len() > Self::BYTES_MAX {
            state.dropped += 1;
            return;
        }
        // A log thread that is writing checks for more lines before it waits.
        let is_waiting = state.lines.is_empty() && !state.is_writing;
        state.lines.extend_from_slice(line);
        drop(state);
        if is_waiting {
            self.changed.notify_all();
        }
    }

    /// Passes batches of lines to `write`, each with the number of lines that were dropped after it. Never returns.
    fn drain(&self, mut write: impl FnMut(&[u8], u64)) {
        let mut batch = Vec::new();
        loop {
            batch.clear();
            batch.shrink_to(Self::BYTES_KEPT);
            let mut state = self.lock();
            state.is_writing = false;
            if state.lines.is_empty() {
                self.changed.notify_all();
            }
            let wait = self.changed.wait_while(state, |state| state.lines.is_empty());
            state = wait.unwrap_or_else(PoisonError::into_inner);
            state.is_writing = true;
            mem::swap(&mut state.lines, &mut batch);
            let dropped = mem::take(&mut state.dropped);
            drop(state);
            write(&batch, dropped);
        }
    }

    /// Waits until all lines are written, but no longer than `time_max`.
    fn flush(&self, time_max: Duration) {
        let is_behind = |state: &mut State| state.is_writing || !state.lines.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), time_max, is_behind));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one event per call, as `tracing_subscriber` writes them.
impl Write for &Buffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer to an output that may fail. It reports the number of dropped lines.
struct Writer<W> {
    out: W,
    format: LogFormat,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    /// Whether the last written line is incomplete.
    is_cut: bool,
}

impl<W: Write> Writer<W> {
    fn new(out: W, format: LogFormat) -> Self {
        Self { out, format, dropped: 0, is_cut: false }
    }

    /// Writes a batch of lines after which `dropped` lines did not fit into the buffer.
    fn write(&mut self, lines: &[u8], dropped: u64) {
        self.report();
        self.dropped += self.put(lines) + dropped;
        self.report();
    }

    fn report(&mut self) {
        if self.dropped > 0 && self.put(dropped_line(self.dropped, self.format).as_bytes()) == 0 {
            self.dropped = 0;
        }
    }

    /// Writes lines and returns the number of lines at the end that could not be written.
    fn put(&mut self, lines: &[u8]) -> u64 {
        let count = |lines: &[u8]| lines.iter().map(|byte| u64::from(*byte == b'\n')).sum();
        if self.is_cut && self.out.write_all(b"\n").is_err() {
            return count(lines);
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        let written = &lines[..lines.len() - rest.len()];
        self.is_cut = written.last().is_some_and(|byte| *byte != b'\n');
        count(rest)
    }
}

/// Formats the report of dropped lines as a log line. The report is not an event, because the buffer could drop an event.
fn dropped_line(lines: u64, log_format: LogFormat) -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut format::Writer::new(&mut time));
    match log_format {
        LogFormat::Text => format!("{time}  WARN enrich::log: lines were dropped lines={lines}\n"),
        LogFormat::Json => format!(
            "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"lines were dropped\",\"lines\":{lines},\
             \"target\":\"enrich::log\"}}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// An output with limited space.
    struct Disk {
        room_bytes: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room_bytes);
            self.room_bytes -= count;
            self.written.extend(&bytes[..count]);
            if count == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reports_dropped_lines_once_and_ends_a_line_that_was_cut() {
        let mut writer = Writer::new(Disk { room_bytes: 6, written: Vec::new() }, LogFormat::Text);
        writer.write(b"one\ntwo\nthree\n", 0);
        writer.write(b"four\n", 5);
        writer.out.room_bytes = 1_000;
        writer.write(b"five\nsix\n", 1);
        writer.write(b"seven\n", 0);
        let text = String::from_utf8(writer.out.written).unwrap();
        let without_time =
            |line: &str| line.split_once("  WARN").map_or(line.to_owned(), |(_, line)| line.to_owned());
        let lines: Vec<_> = text.lines().map(without_time).collect();
        let report = |count| format!(" enrich::log: lines were dropped lines={count}");
        assert_eq!(lines, ["one", "tw", &report(8), "five", "six", &report(1), "seven"]);
    }

    #[test]
    fn a_buffer_that_is_full_drops_lines_and_counts_them() {
        let buffer = Buffer::default();
        let line = vec![b'x'; Buffer::BYTES_MAX / 4];
        (0..7).for_each(|_| buffer.push(&line));
        let state = buffer.lock();
        assert_eq!((state.lines.len(), state.dropped), (Buffer::BYTES_MAX, 3));
    }

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
