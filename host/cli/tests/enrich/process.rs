//! Signals, named pipes, and work beside a test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// The longest time of one test. nextest ends a test after the same time.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

pub fn send(signal: Signal, child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Reads the standard error of a command until it shows how to end immediately.
pub fn wait_until_interrupted(child: &mut Child) -> BufReader<ChildStderr> {
    let (mut stderr, mut output) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !output.contains("Ctrl-C again to exit immediately") {
        assert_ne!(stderr.read_line(&mut output).unwrap(), 0, "{output}");
    }
    stderr
}

/// Creates a FIFO. Opening it waits for the other end.
pub fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Runs each closure of `work` again and again, on a thread of its own, until `test` has returned or panicked.
pub fn beside<T>(work: impl IntoIterator<Item: FnMut() + Send>, test: impl FnOnce() -> T) -> T {
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        for mut work in work {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        test()
    })
}

/// Aborts the test run if the test still runs after [`TEST_TIMEOUT`], because `cargo test` has no timeout.
pub struct Deadline(#[expect(dead_code, reason = "its drop ends the wait")] mpsc::Sender<()>);

impl Deadline {
    pub fn start() -> Self {
        let (running, ended) = mpsc::channel();
        let test = thread::current().name().unwrap_or_default().to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(TEST_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                // Not `eprintln`, whose text is captured and lost.
                let _ = writeln!(std::io::stderr(), "{test} did not end within {TEST_TIMEOUT:?}");
                std::process::abort();
            }
        });
        Self(running)
    }
}
