//! Reports of panics. The message of a panic could quote an email or a key, so only its location is shown.

use std::panic;
use std::thread;

use crate::output;

/// Replaces the default hook, which prints the message, by one that prints the location.
pub fn hide_messages() {
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
        output::remark(format!("error: internal error{location}; this is a bug, please report it"));
    }));
}

/// Replaces the hook by one that logs the location.
pub fn log() {
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(tracing::field::display);
        let thread = thread::current();
        tracing::error!(target: "enrich::panic", thread = thread.name(), location, "a thread panicked");
    }));
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{self, Command};

    use super::*;
    use crate::log::{self, LogFormat};

    #[test]
    fn prints_the_location_of_a_panic_without_its_message() {
        let stderr = stderr_of("prints_the_location_of_a_panic_without_its_message", || {
            hide_messages();
            panic_in_a_thread();
        });
        assert!(stderr.contains("error: internal error at ") && stderr.contains("panics.rs:"), "{stderr}");
    }

    #[test]
    fn logs_the_location_of_a_panic_without_its_message() {
        let stderr = stderr_of("logs_the_location_of_a_panic_without_its_message", || {
            let _log = log::start(LogFormat::Text).unwrap();
            panic_in_a_thread();
        });
        for part in ["ERROR enrich::panic: a thread panicked", "thread=\"worker-7\"", "panics.rs:"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    }

    /// Runs `test` once more, in another process, because hooks are global, and returns the stderr of `run`
    /// in that process.
    fn stderr_of(test: &str, run: impl FnOnce()) -> String {
        const RUNS: &str = "ENRICH_TEST_RUNS";
        if env::var_os(RUNS).is_some() {
            run();
            process::exit(0);
        }
        let ran = Command::new(env::current_exe().unwrap())
            .args(["--exact", &format!("panics::tests::{test}"), "--nocapture"])
            .env(RUNS, "yes")
            .output()
            .unwrap();
        let [stdout, stderr] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(ran.status.success() && !(stdout + &stderr).contains("ada@"), "{stderr}");
        stderr
    }

    fn panic_in_a_thread() {
        let thread = thread::Builder::new().name("worker-7".to_owned());
        assert!(thread.spawn(|| panic!("cannot look up {}", "ada@gmail.com")).unwrap().join().is_err());
    }
}
