//! `enrich lookup` and `enrich bulk` as clients: sources of the key, allowed destinations, and the output of
//! replies.

use std::io::Write;
use std::process::Stdio;

use crate::enrich::{EMAIL, Enrich, Ran};
use crate::fake::{FakeServer, found};
use serde_json::Value;

mod key {
    use super::*;

    /// Returns the credentials that a server receives from `lookup` with these flags, this `ENRICH_KEY` and this
    /// standard input, or the error.
    fn sent(enrich: &Enrich, flags: &[&str], variable: Option<&str>, stdin: &str) -> Result<String, String> {
        let server = FakeServer::start(|email, _| found(email));
        let mut command = enrich.command(&[&["lookup", EMAIL, "--url", &server.url], flags].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.envs(variable.map(|key| ("ENRICH_KEY", key))).spawn().unwrap();
        // A command that fails immediately closes its standard input.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let out = child.wait_with_output().unwrap();
        if out.status.success() {
            return Ok(server.authorizations().remove(0));
        }
        assert_eq!((out.status.code(), server.requests().len()), (Some(2), 0));
        Err(String::from_utf8(out.stderr).unwrap())
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
            assert_eq!(sent(&enrich, flags, variable, stdin), Ok(format!("Bearer {key}")), "{flags:?}");
        }
    }

    #[test]
    fn is_rejected_with_its_source_and_without_its_value() {
        let enrich = Enrich::new();
        enrich.file("empty.key", "");
        enrich.file("blank.key", "\n");
        enrich.file("two.key", "enr_one\nenr_two\n");
        enrich.file("long.key", "x".repeat(10_000));
        for (flags, variable, expected) in [
            (&[][..], None, "no API key is given"),
            (&[], Some(""), "no API key is given"),
            (&[], Some("enr_ a"), "ENRICH_KEY does not contain an API key"),
            (&["--key", ""], Some("enr_env"), "--key is empty"),
            (&["--key", "enr_é"], None, "--key does not contain an API key"),
            (&["--key-file", "-"], None, "standard input is empty"),
            (&["--key-file", "empty.key"], Some("enr_env"), "empty.key is empty"),
            (&["--key-file", "blank.key"], None, "blank.key is empty"),
            (&["--key-file", "two.key"], None, "two.key does not contain an API key"),
            (&["--key-file", "long.key"], None, "long.key is too long for an API key"),
            (&["--key-file", "no.key"], None, "cannot read the API key from no.key: No such file"),
            (&["--key-file", "."], None, "cannot read the API key from .: Is a directory"),
            (&["--key-file", "two.key", "--key", "enr_x"], None, "cannot be used with"),
        ] {
            let error = sent(&enrich, flags, variable, "").unwrap_err();
            assert!(error.contains(expected) && !error.contains("enr_"), "{flags:?}: {error}");
        }
        enrich.file("crm.csv", "email\n");
        let error = enrich.err(&["bulk", "-", "--key-file", "-"]);
        assert!(error.contains("cannot both be standard input"), "{error}");
    }
}

mod plaintext {
    use super::*;

    /// Returns the exit code: 2 if the key is not sent, 4 if the connection fails.
    fn code(args: &[&str]) -> Option<i32> {
        Enrich::new().run(&[args, &["--key", "enr_x"]].concat()).code
    }

    #[test]
    fn requires_a_flag_for_other_hosts() {
        for url in [
            "http://192.0.2.1:1",
            "http://0.0.0.0:1",
            "http://enrich.example:1",
            "http://localhost.example:1",
            "http://127.0.0.1.example:1",
            "http://localhost@enrich.example:1",
            "http://[2001:db8::1]:1",
            "HTTP://enrich.example:1",
        ] {
            let ran = Enrich::new().run(&["lookup", EMAIL, "--key", "enr_x", "--url", url]);
            assert!(ran.code == Some(2), "{url}: {}", ran.stderr);
        }
        let enrich = Enrich::new();
        enrich.file("crm.csv", "email\na@gmail.com\n");
        let error = enrich.err(&["bulk", "crm.csv", "--key", "enr_x", "--url", "http://192.0.2.1:1"]);
        assert!(error.contains("192.0.2.1 unencrypted") && error.contains("--plaintext"), "{error}");
    }

    #[test]
    fn is_allowed_for_localhost_and_with_the_flag() {
        for url in ["http://127.0.0.1:1", "http://127.8.8.8:1", "http://localhost:1", "http://LOCALHOST:1"] {
            assert_eq!(code(&["lookup", EMAIL, "--url", url]), Some(4), "{url}");
        }
        // The wildcard is not a loopback address, but on Linux it reaches this machine.
        assert_eq!(code(&["lookup", EMAIL, "--plaintext", "--url", "http://0.0.0.0:1"]), Some(4));
        assert_eq!(code(&["lookup", EMAIL, "--url", "https://0.0.0.0:1"]), Some(4));
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
        let body = "{\r\n\t\"lookup_id\": \"a\u{9b}\u{202e}\\u001b\",\n\t\"status\": \"found\"}\n";
        let ran = lookup(200, "", body);
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
