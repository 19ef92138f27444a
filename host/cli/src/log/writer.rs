//! Writes log lines to an output that may fail.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A writer that collects whole lines until it is flushed, and counts those that the output refuses. It returns
/// no errors.
pub(crate) struct Writer<W> {
    out: W,
    lines: Vec<u8>,
    /// Whether the last written line is incomplete.
    is_cut: bool,
    refused: Arc<AtomicU64>,
}

impl<W: Write> Writer<W> {
    /// Size of the lines that are written at once. One write per line would take longer than a lookup.
    const BATCH_BYTES: usize = 64 << 10;

    /// `refused` is the number of lines that the output refused.
    pub(crate) fn new(out: W, refused: Arc<AtomicU64>) -> Self {
        Self { out, lines: Vec::new(), is_cut: false, refused }
    }

    /// Writes the collected lines. Returns the length of what the output accepted.
    fn write_lines(&mut self) -> usize {
        if self.is_cut && self.out.write_all(b"\n").is_err() {
            return 0;
        }
        let mut rest = &self.lines[..];
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        let written = self.lines.len() - rest.len();
        self.is_cut = self.lines[..written].last().is_some_and(|byte| *byte != b'\n');
        written
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.extend_from_slice(line);
        if self.lines.len() >= Self::BATCH_BYTES {
            self.flush()?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.write_lines();
        let refused = self.lines[written..].iter().filter(|byte| **byte == b'\n').count();
        self.refused.fetch_add(refused as u64, Ordering::Relaxed);
        self.lines.clear();
        Ok(())
    }
}
