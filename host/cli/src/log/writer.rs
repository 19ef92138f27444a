//! Writes log lines to an output that may fail.

use std::io::{ErrorKind, Write};

use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::format::LogFormat;

/// A writer to an output that may fail. It reports the number of dropped lines.
pub(crate) struct Writer<W> {
    out: W,
    format: LogFormat,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    /// Whether the last written line is incomplete.
    is_cut: bool,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, format: LogFormat) -> Self {
        Self { out, format, dropped: 0, is_cut: false }
    }

    /// Writes a batch of lines after which `dropped` lines did not fit into the buffer. Returns the number of
    /// lines that could not be written.
    pub(crate) fn write(&mut self, lines: &[u8], dropped: u64) -> u64 {
        self.report();
        let unwritten = self.put(lines);
        self.dropped += unwritten + dropped;
        self.report();
        unwritten
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

/// Formats the report of dropped lines as a log line. The report is not an event, because the buffer could
/// drop an event.
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
    use std::io;

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
}
