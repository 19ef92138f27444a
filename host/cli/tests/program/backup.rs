//! `enrich backup`, `restore` and `check`, and the start of a server on damaged files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use regex::Regex;

use crate::commands::console::{PASSWORD, Page, join, sign_in};
use crate::commands::status;
use crate::enrich::{EMAIL, Enrich, beside, bytes_under};
use crate::transcripts::transcript;

/// Creates a workspace with a key, and one person in the directory.
fn with_person() -> (Enrich, String) {
    Enrich::with_ada(1_000_000, 1_000_000_000)
}

#[test]
fn restored_backup_of_a_busy_server_serves() {
    let (enrich, key) = with_person();
    let server = enrich.serve(&[]);
    let mut client = server.connect();
    beside([|| assert_eq!(client.enrich(&key, EMAIL).unwrap().status, 200)], || {
        for backup in ["first", "second", "third"] {
            let output = enrich.ok(&["backup", backup]);
            assert!(output.starts_with("backed up people.key, people.db, accounts.db to"), "{output}");
        }
    });
    drop(server);

    for backup in ["first", "second", "third"] {
        let data = format!("file:{backup}?mode=ro"); // not a URI
        let backed_up = bytes_under(&enrich.path(backup));
        enrich.ok(&["restore", backup, "--data", &data]);
        assert!(bytes_under(&enrich.path(backup)) == backed_up, "a restore changes no backup");
        let output = enrich.ok(&["check", "--data", &data]);
        assert_eq!(
            output,
            "accounts.db: no errors\npeople.db: no errors\npeople.key: no errors\n1 of 1 workspaces reconcile with their rows"
        );
        let server = enrich.serve(&["--data", &data]);
        assert_eq!(status(&server, &key, EMAIL), 200);
    }
}

/// A restored backup must not make sessions valid that have ended since.
#[test]
fn backup_has_no_session_and_no_link() {
    let (enrich, _) = with_person();
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let console = server.console_url();
    let invite = |user| enrich.ok(&["user", "invite", "demo", user, "--url", &console]);
    let (used, unused) = (invite("eva@example.com"), invite("bob@example.com"));
    join(&used);
    let session = sign_in(&console, "eva@example.com", PASSWORD);
    let statuses = |at: &str| {
        let links = [&used, &unused].map(|link| Page::get(&link.replace(&console, at)).status);
        (Page::get_in_session(&format!("{at}/w/demo/keys"), &session).status, links)
    };
    assert_eq!(statuses(&console), (200, [404, 200]));
    enrich.ok(&["backup", "backup"]);
    enrich.ok(&["restore", "backup", "--data", "new"]);
    let restored = enrich.serve(&["--data", "new", "ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    assert_eq!(statuses(&restored.console_url()), (303, [404, 404]));
    assert_eq!(sign_in(&restored.console_url(), "eva@example.com", PASSWORD).header("location"), Some("/"));
}

#[test]
fn transcript_of_targets_with_files() {
    let (enrich, _) = with_person();
    enrich.ok(&["backup", "backup"]);
    let lines = ["backup backup", "restore backup", "restore missing --data new", "backup second --json"];
    let text = transcript(&enrich, &lines);
    let bytes = Regex::new(r#""bytes":\d+"#).unwrap();
    insta::assert_snapshot!(bytes.replace_all(&text, "\"bytes\":[bytes]"));
}

#[test]
fn reports_damage_and_refuses_to_restore_it() {
    let (enrich, _) = with_person();
    enrich.ok(&["backup", "backup"]);
    let intact = bytes_under(&enrich.path("backup"));
    enrich.ok(&["check", "--data", "backup"]);
    assert_eq!(bytes_under(&enrich.path("backup")), intact, "the medium of a backup may be read-only");
    damage(&enrich.path("backup/accounts.db"));
    let error = enrich.err(&["workspace", "list", "--data", "backup"]);
    assert!(
        error.contains("`enrich check`") && error.contains("restore the data directory from a backup"),
        "{error}"
    );
    let error = enrich.err(&["restore", "backup", "--data", "new"]);
    assert!(
        error.contains("accounts.db is damaged: ") && error.ends_with("  restore another backup\n"),
        "{error}"
    );
    assert!(!enrich.path("new").exists());
    let check = enrich.run(&["check", "--data", "backup"]);
    assert_eq!(check.code, Some(1));
    assert!(check.stdout.contains("people.db: no errors\n") && check.stdout.starts_with("accounts.db: "));
    assert!(
        check.stderr.contains("error: the files in backup have errors\n  stop the server"),
        "{}",
        check.stderr
    );
}

#[test]
fn ends_when_its_data_is_replaced() {
    let (enrich, key) = with_person();
    enrich.ok(&["backup", "backup"]);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 200);
    fs::rename(enrich.data(), enrich.path("old")).unwrap();
    enrich.ok(&["restore", "backup"]);
    let (code, log) = server.end();
    assert!(code == Some(1) && log.contains("enrich::serve: stopped by an error reason="), "{log}");
    assert!(
        log.contains("was replaced or deleted while it was in use; changes to the old file are lost"),
        "{log}"
    );
}

/// Overwrites the pages behind the first two.
fn damage(database: &std::path::Path) {
    let file = OpenOptions::new().write(true).open(database).unwrap();
    for page in 2..file.metadata().unwrap().len() / 4096 {
        file.write_all_at(&[0x5a; 2048], page * 4096).unwrap();
    }
}
