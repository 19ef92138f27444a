//! Transcripts of commands: what they print as text and as JSON.

use regex::{Captures, Regex};

use crate::enrich::{EMAIL, Enrich, URL};

/// Runs command lines whose arguments have no spaces. Returns their transcript, in which `! ` precedes each
/// line of standard error. Panics if a command prints the email of a user or a password.
pub fn transcript(enrich: &Enrich, lines: &[&str]) -> String {
    let run = |line: &&str| {
        let ran = enrich.run_line(line);
        let dir = enrich.path("").display().to_string();
        let errors = ran.stderr.lines().map(|line| format!("! {line}").trim_end().to_owned() + "\n");
        let output = (ran.stdout + &errors.collect::<String>()).replace(&dir, "[dir]/");
        assert!(!output.contains("eva@") && !output.contains("hunter2"), "{output}");
        format!(
            "$ enrich {}\n{}\n[exits with {}]\n\n",
            line.escape_debug(),
            output.trim_end(),
            ran.code.unwrap()
        )
    };
    lines.iter().map(run).collect()
}

/// Replaces keys, times and durations, and numbers the ids in the order in which they appear.
pub fn masked(transcript: &str) -> String {
    let mut text = transcript.to_owned();
    for (pattern, mask) in [
        (r"enr_\w+…?", "enr_…"),
        // Times have up to three decimals, which change the width of their column.
        (r"Z {2,}", "Z  "),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[time]"),
        (r"\b20\d\d-\d\d-\d\d\b", "[day]"),
        (r"in [\d.]+ s:", "in [duration]:"),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    for (kind, pattern) in [("key", r"key_[0-9a-f]{8}"), ("lookup", r"lookup_[0-9a-f]{32}")] {
        let mut ids: Vec<String> = Vec::new();
        let numbered = |id: &Captures<'_>| {
            let known = ids.iter().position(|known| *known == id[0]);
            let number = known.unwrap_or_else(|| {
                ids.push(id[0].to_owned());
                ids.len() - 1
            });
            format!("[{kind} {}]", number + 1)
        };
        text = Regex::new(pattern).unwrap().replace_all(&text, numbered).into_owned();
    }
    text
}

#[test]
fn of_workspaces_and_credits() {
    let lines = [
        "workspace create acme --credits 7 --limit 9 --window 30 --json",
        "workspace create bolt",
        "workspace list",
        "workspace list --json",
        "workspace set acme --limit 1000 --low-balance 20",
        "workspace set acme --window 60 --low-balance 0 --json",
        "workspace set acme --display-name Acme\u{a0}Inc.",
        "workspace list",
        "workspace set acme --display-name ",
        "workspace set acme --suspend",
        "workspace set acme --resume --json",
        "credits grant acme 10 --json",
        "credits grant acme 1000",
        "credits grant acme -2 --reason typo",
        "credits grant acme -2000 --reason typo",
        "workspace delete bolt --yes",
        "workspace create bolt",
        "workspace set bolt --resume",
        "credits grant bolt 1",
        "key create bolt label",
        "workspace list --json",
        "credits ledger acme",
        "check",
    ];
    insta::assert_snapshot!(masked(&transcript(&Enrich::new(), &lines)));
}

/// Replaces `KEY1` by the id of the first key of `demo`, and so on.
fn with_ids(enrich: &Enrich, line: &str) -> String {
    let keys = enrich.json(&["key", "list", "demo", "--json"]);
    let ids = keys.as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap());
    ids.zip(1..).fold(line.to_owned(), |line, (id, n)| line.replace(&format!("KEY{n}"), id))
}

#[test]
fn of_keys() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let lines = [
        "key list demo",
        "key create demo test --expires 90d",
        "key create demo other --json",
        "key set KEY1 --disable",
        "key set KEY1 --enable --json",
        "key rotate KEY1 --grace 30m",
        "key list demo",
        "key list demo --json",
        "key rotate KEY4 --json",
        "key revoke KEY1",
        "key set KEY1 --enable",
        "key set KEY1 --disable",
        "key rotate KEY1",
        "key revoke KEY4 --json",
        "key revoke KEY5",
        "key revoke KEY2",
        // Only revoked keys have this label.
        "key create demo test",
    ];
    let run = |line| transcript(&enrich, &[&with_ids(&enrich, line)]);
    insta::assert_snapshot!(masked(&lines.map(run).concat()));
}

#[test]
fn of_usage_and_spends() {
    let (enrich, key) = Enrich::with_ada(5, 500);
    let server = enrich.serve(&[]);
    let replies = [EMAIL, EMAIL, "bea@gmail.com", "bea@gmail.com", "bea"]
        .map(|email| server.connect().enrich(&key, email).unwrap());
    server.stop();
    let lookup_id = replies[1].body["lookup_id"].as_str().unwrap();
    enrich.ok(&["credits", "refund", lookup_id, "--reason", "wrong, and \"late\""]);
    let lines = [
        "usage demo",
        "usage demo --json",
        "usage demo --days 1 --csv",
        "usage demo --by day",
        "usage demo --by day --json",
        "usage demo --by key --csv",
        "usage demo --from 1970-01-01 --to 1999-12-31 --json",
        "credits ledger demo",
        "credits ledger demo --json",
        "credits ledger demo --csv",
        "credits ledger demo --to 1999-12-31 --json",
        &format!("credits refund {lookup_id}"),
        "workspace list",
        "key list demo",
        "key list demo --json",
        "check",
        "check --json",
    ];
    insta::assert_snapshot!(masked(&transcript(&enrich, &lines)));

    // A long period is read in parts.
    let db = rusqlite::Connection::open(enrich.data().join("accounts.db")).unwrap();
    let columns = "workspace, key, outcome, lookups, credits";
    let insert = format!("INSERT INTO usage_day (day, {columns}) SELECT day - 45, {columns} FROM usage_day");
    db.execute(&insert, []).unwrap();
    let rows = |days| enrich.ok(&["usage", "demo", "--by", "key", "--csv", "--days", days]).lines().count();
    assert_eq!(rows("90"), rows("30"));
}

#[test]
fn of_people() {
    let enrich = Enrich::new();
    enrich.ok(&["workspace", "create", "acme"]);
    let row = format!("{EMAIL},{URL}\n");
    enrich.file("people.csv", format!("email,linkedin_url\n{row}"));
    enrich.file("other.csv", format!("Mail,Profile\n{row}"));
    enrich.file("bad.csv", "email,linkedin_url\na,b\n");
    enrich.file("mixed.csv", format!("email,linkedin_url\nnot-an-email,{URL}\n{row}x@gmail.com,y\n"));
    let lines = [
        "people import bad.csv",
        "people import people.csv",
        "people import other.csv",
        "people import other.csv --email-column mail --url-column profile",
        "people import mixed.csv",
        "people import mixed.csv --allow-rejects --json",
        "people import people.csv --json",
        "people stats",
        "people opt-out bea@company.com Bea+news@company.com",
        "people opt-out ada.marlowe@googlemail.com --json",
        "people opt-out --show bea+x@company.com",
        "people opt-out cy@gmail.com not-an-email",
        "people opt-out --show adamarlowe@gmail.com cy@gmail.com --json",
        "people import people.csv --json",
        "people stats --json",
        "people opt-out --withdraw bea@company.com",
        "people opt-out --withdraw adamarlowe@gmail.com cy@gmail.com --json",
    ];
    insta::assert_snapshot!(masked(&transcript(&enrich, &lines)));
}
