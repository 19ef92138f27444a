//! A server's process: it ends with its owner, also when the test panics.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Process(Child);

impl Process {
    /// Starts `program`, which writes its log to `log`, and waits until it `answers`. `None` if it ended instead, as where
    /// another process was faster to take its port. `missing` says how to install it.
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
            assert!(started.elapsed() < PATIENCE, "{name:?} does not answer");
            sleep(Duration::from_millis(5));
        }
        Some(process)
    }

    /// It answers nobody until it goes on; its connections stay.
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

/// With `SIGKILL`, which a paused process obeys too.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A TCP port that nobody listens at.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
