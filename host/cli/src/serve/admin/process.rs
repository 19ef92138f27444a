//! Metrics of the process, with the names that all Prometheus clients use.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use enrich_metrics::exposition::{Exposition, UNLABELLED};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

pub fn encode(out: &mut Exposition<'_>, started_at: SystemTime) -> fmt::Result {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    out.counter("process_cpu_seconds", "CPU time of the process.", [(UNLABELLED, cpu_seconds)])?;
    let started_at = started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    out.gauge(
        "process_start_time_seconds",
        "Start of the process, in Unix time.",
        [(UNLABELLED, started_at)],
    )?;
    let resident = resident_bytes().map(|bytes| (UNLABELLED, bytes));
    out.gauge("process_resident_memory_bytes", "Resident memory of the process.", resident)?;
    let open = fs::read_dir("/dev/fd").ok().map(|files| (UNLABELLED, files.count()));
    out.gauge("process_open_fds", "Open files of the process.", open)?;
    let limit = getrlimit(Resource::Nofile).current.map(|limit| (UNLABELLED, limit));
    out.gauge("process_max_fds", "Limit on open files.", limit)
}

/// Returns the resident memory, on Linux.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1_024)
}
