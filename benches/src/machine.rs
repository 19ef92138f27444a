//! Process and CPU statistics from Linux.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Pins this thread, and the threads and processes that it starts, to one core.
#[cfg(target_os = "linux")]
pub fn pin(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

/// Pins this thread, and the threads and processes that it starts, to one core.
#[cfg(not(target_os = "linux"))]
pub fn pin(_: usize) -> io::Result<()> {
    Err(io::Error::other("--pin is only supported on Linux"))
}

/// Raises the limit on open files of this process to its maximum, as each connection needs one.
pub fn raise_open_file_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns the CPU time of a process, in user and kernel mode.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain spaces. `utime` and `stime` are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().skip(11).take(2));
    Ok(ticks(fields.into_iter().flatten()))
}

/// Returns the resident memory of a process, in bytes.
pub fn memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1_024).ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no VmRSS")))
}

/// A measurement of the utilization of a core by all processes.
#[derive(Debug)]
pub struct CoreUsage {
    name: String,
    idle: Duration,
    since: Instant,
}

impl CoreUsage {
    /// Starts a measurement.
    pub fn start(core: usize) -> io::Result<Self> {
        let name = format!("cpu{core}");
        Ok(Self { idle: idle(&name)?, name, since: Instant::now() })
    }

    /// Returns the share of the time since the start in which the core was busy, from 0 to 1.
    pub fn busy(&self) -> io::Result<f64> {
        let idle = idle(&self.name)?.saturating_sub(self.idle);
        Ok((1.0 - idle.as_secs_f64() / self.since.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Returns the time that a core has spent idle or waiting for I/O.
fn idle(core: &str) -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(core));
    Ok(ticks(line.into_iter().flat_map(|line| line.split(' ').skip(4).take(2))))
}

fn ticks<'a>(numbers: impl Iterator<Item = &'a str>) -> Duration {
    let sum: u64 = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(sum as f64 / clock_ticks_per_second() as f64)
}
