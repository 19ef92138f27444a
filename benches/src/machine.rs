//! What Linux says of processes and cores.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit, setrlimit};

/// From here on this thread runs on one core, and so does what it starts.
#[cfg(target_os = "linux")]
pub fn pin(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

/// From here on this thread runs on one core, and so does what it starts.
#[cfg(not(target_os = "linux"))]
pub fn pin(_: usize) -> io::Result<()> {
    Err(io::Error::other("--pin is for Linux alone"))
}

/// Lets this process open as many files as it may: each connection is one.
pub fn allow_open_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// The processor time that a process has taken, in the kernel too.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may have spaces; `utime` and `stime` are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().skip(11).take(2));
    Ok(ticks(fields.into_iter().flatten()))
}

/// The memory of a process that is in use, in bytes.
pub fn memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1_024).ok_or_else(|| io::Error::other("no VmRSS"))
}

/// How busy a core is, by whatever runs there.
#[derive(Debug)]
pub struct Core {
    name: String,
    idle: Duration,
    since: Instant,
}

impl Core {
    /// Begins to watch.
    pub fn watch(core: usize) -> io::Result<Self> {
        let name = format!("cpu{core}");
        Ok(Self { idle: idle(&name)?, name, since: Instant::now() })
    }

    /// The part of the time since then in which it was busy, from 0 to 1.
    pub fn busy(&self) -> io::Result<f64> {
        let idle = idle(&self.name)?.saturating_sub(self.idle);
        Ok((1.0 - idle.as_secs_f64() / self.since.elapsed().as_secs_f64()).max(0.0))
    }
}

/// The time in which a core did nothing, or waited for a disk.
fn idle(core: &str) -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(core));
    Ok(ticks(line.into_iter().flat_map(|line| line.split(' ').skip(4).take(2))))
}

fn ticks<'a>(numbers: impl Iterator<Item = &'a str>) -> Duration {
    let sum: u64 = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(sum as f64 / clock_ticks_per_second() as f64)
}
