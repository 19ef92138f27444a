//! `enrich people import` on the real binary.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, ChildStdin, Stdio};

use crate::enrich::{Enrich, Signal, eventually, send, wait_until_interrupted};
use serde_json::{Value, json};

/// Returns the number of people in the directory.
fn people(enrich: &Enrich) -> Value {
    enrich.json(&["people", "stats", "--json"])["people"].clone()
}

#[test]
fn replacement_by_a_file_that_may_be_incomplete_removes_nobody() {
    replaces_only_by_a_complete_file(&Enrich::new());
}

/// Replaces ten people by files that are complete, and by others.
pub(crate) fn replaces_only_by_a_complete_file(enrich: &Enrich) {
    let row = |n: usize, name: &str| format!("p{n}@gmail.com,linkedin.com/in/p-{n},{name}\n");
    let rows = |rows: std::ops::Range<usize>| rows.map(|n| row(n, "P")).collect::<String>();
    let import = |rows: &str, args: &[&str]| {
        let file = enrich.file("p.csv", format!("email,linkedin_url,name\n{rows}"));
        let ran = enrich.run(&[&["people", "import", file.to_str().unwrap(), "--json"], args].concat());
        (ran.code, serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default(), ran.stderr)
    };
    assert_eq!(import(&rows(0..10), &[]).0, Some(0));
    let unclosed = row(0, "\"P") + &rows(1..10);
    let stray = rows(0..2) + &row(2, "\"P") + &rows(3..8) + &row(8, "\"P") + &rows(9..10);
    let others = rows(0..7) + &rows(20..40);
    for args in [&["--replace"][..], &["--replace", "--allow-rejects"]] {
        for (file, stopped, not_removed, expected) in [
            (&*unclosed, "unreadable", 0, "line 2: the quote that opens in this row is never closed"),
            (&*stray, "unreadable", 0, "line 4: text follows a closing quote in line 10"),
            ("", "", 10, "--replace would remove 10 of 10 people"),
            (&*others, "", 3, "--replace would remove 3 of 10 people"),
            // The first attempt has not added the others.
            (&*others, "", 3, "--replace would remove 3 of 10 people"),
        ] {
            let (code, output, error) = import(file, args);
            assert_eq!(code, Some(1), "{error}");
            assert!(error.contains(expected), "{error}");
            assert_eq!((people(enrich), &output["removed"]), (json!(10), &json!(0)));
            assert!(not_removed == 0 || output["unchanged"] == 0, "of rows that are not stored: {output}");
            assert_eq!(
                (&output["not_removed"], output["stopped"].as_str().unwrap_or_default()),
                (&json!(not_removed), stopped)
            );
            assert_eq!(error.contains("repair the file and run the same command again"), !stopped.is_empty());
        }
    }
    for (file, limit, removed) in [(rows(0..8), "20%", 2), (rows(0..5), "3", 3), (String::new(), "100%", 5)] {
        let (code, output, error) = import(&file, &["--replace", "--remove-up-to", limit]);
        assert_eq!((code, &output["removed"]), (Some(0), &json!(removed)), "{error}");
    }
    assert_eq!(people(enrich), 0);
}

#[test]
fn second_import_is_refused_until_the_first_has_ended_or_is_killed() {
    imports_exclude_each_other(&Enrich::new());
}

pub(crate) fn imports_exclude_each_other(enrich: &Enrich) {
    enrich.import_ada();
    let (mut first, _rows) = stdin::begin(enrich, 1);
    let second = || enrich.run(&["people", "import", "people.csv"]);
    let error = second().stderr;
    assert!(error.contains("another import into ") && error.contains(" is running since 20"), "{error}");
    assert!(error.contains("wait until it has ended"), "{error}");
    first.kill().unwrap();
    first.wait().unwrap();
    eventually("the second imports", || (second().code == Some(0)).then_some(()));
}

mod rejects {
    use super::*;

    /// Imports a file with one invalid row.
    fn import(enrich: &Enrich, args: &[&str]) -> String {
        let file = enrich.file("p.csv", "email,linkedin_url\na,b\n");
        enrich.run(&[&["people", "import", file.to_str().unwrap()], args].concat()).stderr
    }

    const LIST: &str = "line,reason\n2,\"the email has no local part followed by an @\"\n";

    #[test]
    fn replace_links_and_keep_their_targets() {
        let enrich = Enrich::new();
        let victim = enrich.file("victim", "precious");
        let list = enrich.path("p.csv.rejects.csv");
        let link_symbolically: fn(_, _) -> _ = |victim, list| symlink(victim, list);
        let link_hard: fn(_, _) -> _ = |victim, list| fs::hard_link(victim, list);
        for link in [link_symbolically, link_hard] {
            link(victim.clone(), list.clone()).unwrap();
            import(&enrich, &[]);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            assert_eq!(fs::read_to_string(&list).unwrap(), LIST);
            assert!(!list.is_symlink());
            assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
            fs::remove_file(&list).unwrap();
        }
        // The same for the temporary file that is renamed to the list.
        let new = enrich.path("p.csv.rejects.csv.new");
        symlink(&victim, &new).unwrap();
        import(&enrich, &[]);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&list).unwrap(), LIST);
        assert!(!new.is_symlink());
    }

    #[test]
    fn are_only_counted_if_the_list_cannot_be_written() {
        let enrich = Enrich::new();
        let file = enrich.file("p.csv", "email,linkedin_url\na,b\nada@gmail.com,linkedin.com/in/ada\n");
        fs::create_dir(enrich.path("p.csv.rejects.csv.new")).unwrap();
        let ran = enrich.run(&["people", "import", file.to_str().unwrap(), "--json"]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("the rejected rows are not listed: "), "{}", ran.stderr);
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (&summary["changed"], &summary["rejected"], &summary["rejects"]),
            (&json!(1), &json!(1), &json!(null))
        );
    }

    #[test]
    fn stay_listed_while_another_import_is_refused() {
        let enrich = Enrich::new();
        let (first, rows) = stdin::begin(&enrich, 1);
        import(&enrich, &["--rejects", "stdin.rejects.csv"]);
        drop(rows);
        assert_eq!(first.wait_with_output().unwrap().status.code(), Some(1));
        let list = fs::read_to_string(enrich.path("stdin.rejects.csv")).unwrap();
        assert_eq!(list, LIST.replace("\n2,", "\n3,"));
    }

    #[test]
    fn are_no_longer_listed_after_an_import_without_them() {
        let enrich = Enrich::new();
        import(&enrich, &[]);
        let list = enrich.path("p.csv.rejects.csv");
        assert!(list.exists());
        for (before, is_kept) in [(LIST, false), ("mine", true)] {
            fs::write(&list, before).unwrap();
            let file = enrich.file("p.csv", "email,linkedin_url\nada@gmail.com,linkedin.com/in/ada\n");
            enrich.ok(&["people", "import", file.to_str().unwrap()]);
            assert_eq!(list.exists(), is_kept, "{before}");
        }
    }

    #[test]
    fn refuse_to_overwrite_other_files() {
        let enrich = Enrich::new();
        let file = enrich.path("p.csv");
        symlink("/dev/null", enrich.path("null")).unwrap();
        for (rejects, expected) in [
            ("/dev/null", "not a regular file"),
            ("null", "not a regular file"),
            (enrich.path("").to_str().unwrap(), "not a regular file"),
            (file.to_str().unwrap(), "is the file to import"),
        ] {
            let error = import(&enrich, &["--rejects", rejects]);
            assert!(error.contains(expected) && error.contains("--rejects"), "{error}");
        }
        symlink(&file, enrich.path("link.csv")).unwrap();
        let error = enrich.err(&["people", "import", "link.csv", "--rejects", "p.csv"]);
        assert!(error.contains("is the file to import"), "{error}");
        assert!(enrich.path("null").is_symlink());
        import(&enrich, &["--rejects", "mine.csv"]);
        assert_eq!(fs::read_to_string(enrich.path("mine.csv")).unwrap(), LIST);
    }
}

pub(crate) mod stdin {
    use super::*;

    /// Starts an import of standard input.
    fn start(enrich: &Enrich) -> (Child, ChildStdin) {
        let mut command = enrich.command(&["people", "import", "-", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        (child, stdin)
    }

    /// Starts an import, and waits until it has read this number of people and a row that is invalid.
    pub(crate) fn begin(enrich: &Enrich, good: usize) -> (Child, ChildStdin) {
        let (child, mut stdin) = start(enrich);
        let good = (0..good).map(|i| format!("p{i}@gmail.com,linkedin.com/in/p-{i}\n"));
        write!(stdin, "email,linkedin_url\n{}a,b\n", good.collect::<String>()).unwrap();
        eventually("the bad row", || enrich.path("stdin.rejects.csv.new").exists().then_some(()));
        (child, stdin)
    }

    /// Returns whether the process has a handler for SIGINT, which is signal 2 and therefore the second bit
    /// of the mask.
    fn catches_sigint(child: &Child) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0
    }

    #[test]
    fn signal_imports_the_rows_read_and_explains_how_to_continue() {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let enrich = Enrich::new();
            let (child, _stdin) = begin(&enrich, 1_000);
            // The import is waiting for more rows.
            send(signal, &child);
            let out = child.wait_with_output().unwrap();
            let stderr = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(code), "{stderr}");
            for expected in
                ["stopped after 1,001 rows: interrupted", "are imported; run the same command again"]
            {
                assert!(stderr.contains(expected), "{stderr}");
            }
            let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!((&summary["changed"], &summary["rejected"]), (&json!(1_000), &json!(1)));
            assert_eq!(summary["stopped"], "interrupted");
            assert_eq!(people(&enrich), 1_000);
            let list = fs::read_to_string(enrich.path("stdin.rejects.csv")).unwrap();
            assert!(list.starts_with("line,reason\n1002,"), "{list}");
        }
    }

    #[test]
    fn signal_before_the_first_row_imports_nothing() {
        let enrich = Enrich::new();
        let (child, _stdin) = start(&enrich);
        eventually("the import watches for SIGINT", || catches_sigint(&child).then_some(()));
        send(Signal::INT, &child);
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(130), "{stderr}");
        for expected in ["stopped after 0 rows: interrupted", "nothing was imported"] {
            assert!(stderr.contains(expected), "{stderr}");
        }
    }

    /// Another process delays the first write.
    #[test]
    fn signal_while_rows_are_written_keeps_others() {
        let enrich = Enrich::new();
        enrich.import_ada();
        let lock = enrich.data().join("import.lock");
        let file = enrich.file("p.csv", "email,linkedin_url\nbea@gmail.com,linkedin.com/in/bea\n");
        let other = rusqlite::Connection::open(enrich.data().join("people.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let args = ["people", "import", file.to_str().unwrap(), "--replace", "--remove-up-to", "1"];
        let mut child = enrich.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let is_locked = || fs::read_to_string(&lock).unwrap().trim() == child.id().to_string();
        eventually("the row is read", || is_locked().then_some(()));
        send(Signal::INT, &child);
        let _stderr = wait_until_interrupted(&mut child);
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(people(&enrich), 2);
    }

    #[test]
    fn second_signal_exits_immediately() {
        let enrich = Enrich::new();
        enrich.import_ada();
        let other = rusqlite::Connection::open(enrich.data().join("people.db")).unwrap();
        let (mut child, _stdin) = begin(&enrich, 10);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        send(Signal::INT, &child);
        let _stderr = wait_until_interrupted(&mut child);
        send(Signal::INT, &child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(people(&enrich), 1);
        enrich.import_ada();
    }
}
