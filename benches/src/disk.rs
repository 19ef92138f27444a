//! The latency of the disk, which bounds that of durable spends.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The size of a write: about that of a commit of a few spends.
const WRITE_BYTES: usize = 8 * 1_024;

/// The size of the file, which is written in place, as a write-ahead log is.
const FILE_BYTES: u64 = 4 * 1_024 * 1_024;

/// A sync that takes longer delays all spends that arrive meanwhile.
const SLOW: Duration = Duration::from_millis(1);

/// The latencies of writes that are synced one after the other, in microseconds.
#[derive(Debug)]
pub struct DiskLatency(Histogram<u64>);

impl DiskLatency {
    /// Creates an empty measurement.
    pub fn new() -> io::Result<Self> {
        Histogram::new(3).map(Self).map_err(io::Error::other)
    }

    /// Writes and syncs a temporary file for `time`, in the directory of the servers' data.
    pub fn measure(&mut self, time: Duration) -> io::Result<()> {
        let file = tempfile::tempfile()?;
        file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
        file.sync_all()?;
        let started_at = Instant::now();
        let mut at = 0;
        while started_at.elapsed() < time {
            let took = sync_one(&file, at)?;
            self.0.record(took.as_micros() as u64).map_err(io::Error::other)?;
            at = (at + WRITE_BYTES as u64) % FILE_BYTES;
        }
        Ok(())
    }

    /// Returns the share of the time that passed in slow syncs, from 0 to 1.
    fn slow_share(&self) -> f64 {
        let time = |least: u64| -> u64 {
            let recorded = self.0.iter_recorded().filter(|value| value.value_iterated_to() >= least);
            recorded.map(|value| value.value_iterated_to() * value.count_at_value()).sum()
        };
        time(SLOW.as_micros() as u64) as f64 / time(0).max(1) as f64
    }
}

fn sync_one(file: &File, at: u64) -> io::Result<Duration> {
    file.write_all_at(&[1; WRITE_BYTES], at)?;
    let started_at = Instant::now();
    file.sync_data()?;
    Ok(started_at.elapsed())
}

impl fmt::Display for DiskLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        write!(
            f,
            "the disk alone, {} syncs of 8 KiB: p50 {:.2} ms, p99 {:.2} ms; {:.1} % of the time in syncs of 1 ms or more",
            self.0.len(),
            ms(0.5),
            ms(0.99),
            self.slow_share() * 100.0
        )
    }
}
