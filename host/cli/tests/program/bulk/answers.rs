//! Results are written next to their rows.

use std::io::Write;
use std::process::Stdio;

use regex::Regex;

use super::with_people;
use crate::fake::{FakeServer, found};
use crate::transcripts::{masked, transcript};

#[test]
fn csv_keeps_columns_and_rows_and_bills_each_email_once() {
    let (enrich, key) = with_people(2, 100, 500);
    let server = enrich.serve(&[]);
    enrich.file(
        "crm.csv",
        "Name,E-Mail,note,note\n\
         \"Marlowe, Ada\",p0@gmail.com,=1+1,\"two\nlines\"\n\
         Bea, zoe@gmail.com ,,\n\
         Ada again,P0@Gmail.com,+49 30,-\n\
         Cy,p1@gmail.com,@x,\n\
         Dee,not-an-email,,\n\
         Eve,,,\n",
    );
    enrich.file("demo.key", &key);
    let bulk = format!("bulk crm.csv --column e-mail -o out.csv --key-file demo.key --url {}", server.url);
    let text = transcript(&enrich, &[&bulk]).replace(&server.url, "[url]")
        + &std::fs::read_to_string(enrich.path("out.csv")).unwrap();
    let times = Regex::new(r"in .* s, .* per second").unwrap();
    insta::assert_snapshot!(masked(&times.replace(&text, "in [time]")));
    assert_eq!(enrich.spent(), 2, "three rows were found, of two people");
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
