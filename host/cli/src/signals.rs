//! SIGINT and SIGTERM: the first signal stops a command gracefully. The second one exits `bulk` and `people import` at
//! once, and ends the delay of a server's shutdown, not the shutdown itself. SIGHUP stops `bulk`, too. The default
//! action of SIGXFSZ, which ends the process, is replaced.

use std::{fs, thread};

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};
use crate::runtime;

/// Listens for signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Replaces the default actions of SIGINT and SIGTERM. Panics outside a Tokio runtime.
    pub fn new() -> Result<Self, Failure> {
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup: None })
    }

    /// Replaces the default action of SIGHUP, too, unless the parent process has disabled it, as `nohup` does. Without
    /// `/proc`, it keeps the default action.
    pub fn with_hangup(mut self) -> Result<Self, Failure> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if ignored.is_some_and(|mask| mask & (1 << (Number::HUP.as_raw() - 1)) == 0) {
            self.hangup = Some(listen(SignalKind::hangup())?);
        }
        Ok(self)
    }

    /// Waits for the next signal and returns its exit code. Cancel safe.
    pub async fn next(&mut self) -> Exit {
        let Self { interrupt, terminate, hangup } = self;
        tokio::select! {
            _ = interrupt.recv() => Exit::Interrupted,
            _ = terminate.recv() => Exit::Terminated,
            Some(()) = async { hangup.as_mut()?.recv().await } => Exit::HungUp,
        }
    }
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) fail like one to a full disk, also after
/// the return. The default action of SIGXFSZ ends the process.
pub fn survive_file_size_limit() -> Result<(), Failure> {
    let runtime = runtime::single_threaded()?;
    let _runtime = runtime.enter();
    listen(SignalKind::from_raw(Number::XFSZ.as_raw())).map(drop)
}

/// Replaces the default action of a signal. Panics outside a Tokio runtime.
pub fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| Failure::new(format!("cannot listen for signals: {e}")))
}

/// Handles signals on a separate thread, for commands without a runtime. The first signal calls `stop` with
/// its exit code; the second one exits the process.
pub fn watch(stop: impl FnOnce(Exit) + Send + 'static) -> Result<(), Failure> {
    let runtime = runtime::single_threaded()?;
    let mut signals = {
        let _runtime = runtime.enter();
        Signals::new()?
    };
    thread::spawn(move || {
        runtime.block_on(async {
            stop(signals.next().await);
            std::process::exit(signals.next().await as i32);
        })
    });
    Ok(())
}
