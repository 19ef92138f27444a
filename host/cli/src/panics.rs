//! Reports of panics. The message of a panic could quote an email or a key, so only its location is shown.

use std::panic;

use crate::output;

/// Replaces the default hook, which prints the message. `serve` replaces this hook by one that logs.
pub fn hide_messages() {
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
        output::remark(format!("error: internal error{location}; this is a bug, please report it"));
    }));
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// Set in the process that panics.
    const PANICS: &str = "ENRICH_TEST_PANICS";

    #[test]
    fn shows_the_location_of_a_panic_without_its_message() {
        if env::var_os(PANICS).is_some() {
            hide_messages();
            panic!("cannot look up {}", "ada@gmail.com");
        }
        let test = "panics::tests::shows_the_location_of_a_panic_without_its_message";
        let ran = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(PANICS, "yes")
            .output()
            .unwrap();
        let [stdout, stderr] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(stderr.contains("error: internal error at ") && stderr.contains("panics.rs:"), "{stderr}");
        assert!(!ran.status.success() && !(stdout + &stderr).contains("ada@"));
    }
}
