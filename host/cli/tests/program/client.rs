//! `enrich lookup` and `enrich bulk` as clients: sources of the key, allowed destinations, and the output of
//! replies.

use std::io::Write;
use std::process::Stdio;

use crate::enrich::{EMAIL, Enrich, Ran};
use crate::fake::{FakeServer, found};
use serde_json::Value;

mod key {
    use super::*;

    /// Returns the credentials that a server receives from `lookup` with these flags, this `ENRICH_KEY` and
    /// this standard input.
    fn sent(enrich: &Enrich, flags: &[&str], variable: Option<&str>, stdin: &str) -> Vec<String> {
        let server = FakeServer::start(|email, _| found(email));
        let mut command = enrich.command(&[&["lookup", EMAIL, "--url", &server.url], flags].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.envs(variable.map(|key| ("ENRICH_KEY", key))).spawn().unwrap();
        // A command that does not read its standard input may have closed it.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait().unwrap();
        server.authorizations()
    }

    #[test]
    fn comes_from_one_source_and_a_flag_overrides_the_environment() {
        let enrich = Enrich::new();
        enrich.file("unix.key", "enr_file\n");
        enrich.file("dos.key", "enr_file\r\n");
        enrich.file("bare.key", "enr_file");
        let env = Some("enr_env");
        for (flags, variable, stdin, key) in [
            (&["--key-file", "unix.key"][..], env, "", "enr_file"),
            (&["--key-file", "dos.key"], None, "", "enr_file"),
            (&["--key-file", "bare.key"], None, "", "enr_file"),
            (&["--key-file", "-"], env, "enr_stdin\n", "enr_stdin"),
            (&["--key", "enr_flag"], env, "", "enr_flag"),
            (&[], env, "", "enr_env"),
        ] {
            assert_eq!(sent(&enrich, flags, variable, stdin), [format!("Bearer {key}")], "{flags:?}");
        }
    }
}

mod replies {
    use super::*;

    /// A terminal title sequence, the bell character, a C1 control and a right-to-left override.
    const EVIL: &str = "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}";

    fn lookup(status: u16, headers: &str, body: &str) -> Ran {
        let (headers, body) = (headers.to_owned(), body.to_owned());
        let server = FakeServer::start(move |_, _| Some((status, headers.clone(), body.clone())));
        Enrich::new().run(&["lookup", EMAIL, "--key", "enr_x", "--url", &server.url])
    }

    fn is_plain(text: &str) -> bool {
        text.trim_end().lines().all(|line| !line.contains(|c: char| c.is_control() || c == '\u{202e}'))
    }

    #[test]
    fn are_shown_without_control_characters() {
        for (status, headers, body) in [
            (500, "", format!("<html>{EVIL}\r\n")),
            (200, "", EVIL.to_owned()),
            (200, "", format!("\"lookup_id\"{EVIL}")),
            (429, "retry-after: 1\t\u{9b}31m\r\n", format!("{{\"error\":\"{EVIL}\"}}")),
        ] {
            let ran = lookup(status, headers, &body);
            assert!(!ran.success && ran.stdout.is_empty(), "{}", ran.stdout);
            assert!(is_plain(&ran.stderr), "{:?}", ran.stderr);
        }
        let long = lookup(502, "", &"x".repeat(60_000));
        assert!(long.stderr.len() < 1_000, "{} bytes", long.stderr.len());
    }

    #[test]
    fn stay_the_same_json() {
        let body = "{\r\n\t\"lookup_id\": \"a\",\n\t\"status\": \"not_found\", \"new\": \"a\u{9b}\u{202e}\\u001b\"}\n";
        let ran = lookup(404, "", body);
        assert!(ran.success && is_plain(&ran.stdout), "{:?}", ran.stdout);
        assert_eq!(ran.stdout.lines().count(), 1);
        let [sent, shown] = [body, &ran.stdout].map(|text| serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(sent, shown);
    }

    #[test]
    fn of_bulk_are_shown_without_control_characters() {
        for (status, body) in [(200, EVIL.to_owned()), (400, format!("{{\"error\":\"{EVIL}\"}}"))] {
            let server = FakeServer::start(move |_, _| Some((status, String::new(), body.clone())));
            let enrich = Enrich::new();
            enrich.file("crm.csv", format!("email\n{EMAIL}\n"));
            let ran = enrich.run(&["bulk", "crm.csv", "--key", "enr_x", "--url", &server.url]);
            assert!(!ran.success && is_plain(&ran.stdout) && is_plain(&ran.stderr), "{:?}", ran.stderr);
        }
        let server = FakeServer::start(|email, _| {
            found(email).map(|(status, headers, body)| (status, headers, body.replace("id-", "id\u{202e}")))
        });
        let enrich = Enrich::new();
        enrich.file("crm.csv", format!("email\n{EMAIL}\n"));
        let ran = enrich.run(&["bulk", "crm.csv", "--key", "enr_x", "--url", &server.url]);
        assert!(!ran.success && is_plain(&ran.stdout) && is_plain(&ran.stderr), "{:?}", ran.stdout);
    }
}
