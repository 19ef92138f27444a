//! A server process that is killed when its owner is dropped, also if the test panics.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The timeout until a server answers for the first time.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts `program`, redirects its output to `log`, and waits until `answers` returns `true`.
    ///
    /// Returns `None` if the process exits first, for example because its port is in use. Panics with
    /// `missing`, which explains how to install the program, if it cannot be started.
    pub(super) fn start(
        mut program: Command,
        log: &Path,
        missing: &str,
        answers: impl Fn() -> bool,
    ) -> Option<Self> {
        let log = File::create(log).unwrap();
        program.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let name = program.get_program().to_owned();
        let child =
            program.spawn().unwrap_or_else(|error| panic!("can't start {name:?}: {error}\n{missing}"));
        let mut process = Self(child);
        let started = Instant::now();
        while !answers() {
            if process.0.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(started.elapsed() < TIMEOUT, "{name:?} did not respond");
            sleep(Duration::from_millis(5));
        }
        Some(process)
    }

    pub(super) fn has_exited(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Suspends the process. Its connections stay open but get no replies.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

/// Sends `SIGKILL`, which also ends a suspended process.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a TCP port that is not in use.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the processes that `of` has started.
pub(super) fn children(of: Pid) -> Vec<Pid> {
    let parent = format!("PPid:\t{}", of.as_raw_nonzero());
    let is_child = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.lines().any(|line| line == parent))
    };
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    processes.filter_map(|name| name.parse().ok()).filter(is_child).filter_map(Pid::from_raw).collect()
}
