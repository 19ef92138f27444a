//! Results are written next to their rows.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::{bulk, with_people};
use crate::fake::{FakeServer, found};

/// Replaces the lookup ids, the only part that differs between runs.
fn without_ids(text: &str) -> String {
    let mut parts = text.split("lookup_0");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + "ID" + &part[31..])
}

#[test]
fn csv_keeps_columns_and_rows_and_bills_each_email_once() {
    let (enrich, key) = with_people(2, 100, 500);
    let server = enrich.serve(&[]);
    let file = enrich.file(
        "crm.csv",
        "\u{feff}Name,E-Mail,note,note\r\n\
         \"Marlowe, Ada\",p0@gmail.com,=1+1,\"two\nlines\"\r\n\
         Bea, zoe@gmail.com ,\"say \"\"hi\"\"\",\r\n\
         Ada again,P0@Gmail.com,+49 30,-\r\n\
         Cy,p1@gmail.com,@x,\n\
         Dee,not-an-email,,\n\
         Eve,,,\n",
    );
    let ran = enrich.run(&bulk(
        &server.url,
        &key,
        &[file.to_str().unwrap(), "--column", "e-mail", "-o", "out.csv"],
    ));
    let out = enrich.path("out.csv");
    assert_eq!(
        without_ids(&std::fs::read_to_string(&out).unwrap()),
        "\u{feff}Name,E-Mail,note,note,linkedin_url,status,lookup_id,reason\n\
         \"Marlowe, Ada\",p0@gmail.com,=1+1,\"two\nlines\",https://www.linkedin.com/in/p-0,found,ID,\n\
         Bea, zoe@gmail.com ,\"say \"\"hi\"\"\",,,not_found,ID,\n\
         Ada again,P0@Gmail.com,+49 30,-,https://www.linkedin.com/in/p-0,found,ID,\n\
         Cy,p1@gmail.com,@x,,https://www.linkedin.com/in/p-1,found,ID,\n\
         Dee,not-an-email,,,,invalid_email,ID,email-syntax\n\
         Eve,,,,,no_email,,\n"
    );
    assert_eq!(enrich.spent(), 2, "three rows were found, of two people");
    assert!(!ran.success, "two rows have errors");
    assert!(
        ran.stdout.contains("3 found, 1 not found, 2 with errors\n  1 invalid_email\n  1 no_email\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.ends_with("4 emails looked up, 2 matched\n"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "line 8: there is no email\nerror: 2 rows have an error status\n");
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!enrich.path("out.csv.run").exists());
    let log = server.stop();
    assert!(!log.contains("gmail") && !log.contains(&key), "{log}");
}

#[test]
fn answers_stdin_row_by_row_with_the_key_from_the_environment() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = super::Enrich::new();
    let mut command = enrich.command(&["bulk", "-"]);
    command.env("ENRICH_KEY", "enr_x").env("ENRICH_URL", &server.url);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut line = || {
        use std::io::Read;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "stdout ended");
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    // Longer than the part of the file that is read to detect the format.
    let note = "x".repeat(10_000);
    stdin.write_all(format!("email,note\np0@gmail.com,{note}\np1@gmail.com,\n").as_bytes()).unwrap();
    assert_eq!(line(), "email,note,linkedin_url,status,lookup_id,reason\n");
    assert_eq!(line(), format!("p0@gmail.com,{note},https://www.linkedin.com/in/p0,found,id-p0,\n"));
    stdin.write_all(b"p2@gmail.com,\n").unwrap();
    drop(stdin);
    assert!(line().starts_with("p1@gmail.com,,") && line().starts_with("p2@gmail.com,,"));
    assert!(child.wait().unwrap().success());
}
