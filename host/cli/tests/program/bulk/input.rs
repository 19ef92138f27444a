//! Input files: errors are reported with their line, and no content is lost.

use serde_json::Value;

use super::bulk;
use crate::enrich::Enrich;
use crate::fake::{FakeServer, found};

#[test]
fn rejects_unusable_files_without_a_request() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    for (content, expected_text, advice) in [
        ("", "the file is empty", ""),
        ("Mail,Name\np0@gmail.com,P\n", "there is no column email; the columns are Mail, Name", "--column"),
        ("email|name\np0@gmail.com|P\n", "there is no column email", "sep=|"),
        (
            "PK\u{3}\u{4}\u{14}\0",
            "the file is an Excel workbook or another ZIP archive",
            "save it as CSV (UTF-8)",
        ),
        ("p0@gmail.com,P\n", "expected a header row, found an email", ""),
        ("email,Email\np0@gmail.com,P\n", "there are several columns email", "rename"),
        ("email,Status\np0@gmail.com,P\n", "line 1: the column status already exists", "--prefix"),
        ("email,n\np0@gmail.com,1\np1@gmail.com,\"x\np2@gmail.com,y\n", "line 3: the quote that opens", ""),
        (
            "email,n\r\np0@gmail.com,1\r\n\r\np1@gmail.com,\"x\r\np2@gmail.com,y\r\n",
            "line 4: the quote that opens",
            "",
        ),
        ("email,\"n\np0@gmail.com,1\n", "line 1: the quote that opens", ""),
        (
            "email,n\np0@gmail.com,\"x\np1@gmail.com,y\np2@gmail.com,\"z\np3@gmail.com,\n",
            "line 2: text follows a closing quote in line 4",
            "",
        ),
        ("[\n{\"email\":\"p0@gmail.com\"}\n]\n", "the file is a JSON array", "jq"),
        (
            "{\"email\":\"p0@gmail.com\"}\n{\"status\":1}\n",
            "line 2: the column status already exists",
            "--prefix",
        ),
    ] {
        let file = enrich.file("crm", content);
        let error = enrich.err(&bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out"]));
        assert!(error.contains(expected_text) && error.contains(advice), "{content:?}: {error}");
        assert!(!error.contains("@gmail"), "{error}");
        assert!(!enrich.path("out").exists());
    }
    assert!(enrich.err(&bulk(&server.url, "enr_x", &["nowhere.csv"])).contains("cannot read nowhere.csv"));
    assert_eq!(server.requests(), [""; 0]);
}

#[test]
fn keeps_invalid_csv_rows_without_a_request() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let long = "x".repeat(2000);
    let file = enrich.file(
        "crm.csv",
        [
            b"name,email,note\nAda,p0@gmail.com\nBea,p1@gmail.com,,more\nCy,p2\xff@gmail.com,\xff\nDee,  ,\n"
                .as_slice(),
            format!("Eve,{long}@gmail.com,\nFay,p3@gmail.com,\n").as_bytes(),
        ]
        .concat(),
    );
    let ran = enrich.run(&bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out.csv"]));
    let out = std::fs::read(enrich.path("out.csv")).unwrap();
    let expected = [
        b"name,email,note,linkedin_url,status,lookup_id,reason\nAda,p0@gmail.com,,,malformed_row,,\n\
          Bea,p1@gmail.com,,more,,malformed_row,,\nCy,p2\xff@gmail.com,\xff,,malformed_row,,\nDee,  ,,,no_email,,\n"
            .as_slice(),
        format!("Eve,{long}@gmail.com,,,invalid_email,,\nFay,p3@gmail.com,,https://www.linkedin.com/in/p3,found,id-p3,\n")
            .as_bytes(),
    ]
    .concat();
    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
    assert_eq!(out, expected);
    assert_eq!(server.requests(), ["p3@gmail.com"]);
    assert_eq!(
        ran.stderr,
        "line 2: the row has 2 columns, the header has 3; check for a missing quote\n\
         line 3: the row has 4 columns, the header has 3; check for a missing quote\n\
         line 4: the email is not UTF-8\n\
         line 5: there is no email\n\
         line 6: the email is longer than 254 characters\n\
         error: 5 rows have an error status\n"
    );
    assert!(!ran.success);
}

#[test]
fn reports_the_line_of_a_bad_row_in_a_file_with_crlf() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let file =
        enrich.file("crm.csv", "n,email\r\n1,\r\n\"\r\n2\",\r\n\r\n\"3\n\",\r\n4,p0@gmail.com\r\n5,\r\n");
    let ran = enrich.run(&bulk(&server.url, "enr_x", &[file.to_str().unwrap()]));
    let output: Vec<_> = ran.stderr.lines().filter(|line| line.ends_with(": there is no email")).collect();
    assert_eq!(
        output,
        ["line 2", "line 3", "line 6", "line 9"].map(|line| format!("{line}: there is no email"))
    );
}

#[test]
fn uses_the_delimiter_of_the_input() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    for (prefix, d) in [("", ";"), ("", "\t"), ("sep=;\n", ";"), ("\u{feff}sep=|\n", "|"), ("", ",")] {
        let input = format!(
            "{prefix}name{d}email\n\"Marlowe{d} Ada\"{d}p0@gmail.com\n\"Marlowe, Bea\"{d}p1@gmail.com\n"
        );
        let quoted = if d == "," { "\"Marlowe, Bea\"" } else { "Marlowe, Bea" };
        let expected = format!(
            "{prefix}name{d}email{d}linkedin_url{d}status{d}lookup_id{d}reason\n\
             \"Marlowe{d} Ada\"{d}p0@gmail.com{d}https://www.linkedin.com/in/p0{d}found{d}id-p0{d}\n\
             {quoted}{d}p1@gmail.com{d}https://www.linkedin.com/in/p1{d}found{d}id-p1{d}\n"
        );
        let file = enrich.file("crm.csv", input.replace('\n', "\r\n"));
        let args = bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out.csv"]);
        let out = enrich.path("out.csv");
        enrich.ok(&args);
        assert_eq!(std::fs::read_to_string(&out).unwrap(), expected);
        std::fs::write(&out, &expected[..expected.len() - 20]).unwrap();
        enrich.ok(&args);
        assert_eq!(std::fs::read_to_string(&out).unwrap(), expected, "after a resume");
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn keeps_invalid_json_lines_without_a_request() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let lines = [
        "{\"email\":\"p0@gmail.com\"",
        "[\"p1@gmail.com\"]",
        "{\"email\":7}",
        "{\"email\":null}",
        "{\"email\":\"p2@gmail.com\",\"email\":\"p3@gmail.com\"}",
        "{\"email\":\" p4@gmail.com\"}",
    ];
    let file = enrich.file("crm.jsonl", format!("\u{feff}{}", lines.join("\r\n")));
    let ran = enrich.run(&bulk(&server.url, "enr_x", &[file.to_str().unwrap()]));
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    let bad = "malformed_row";
    assert_eq!(statuses, [bad, bad, bad, "no_email", bad, "found"]);
    assert_eq!((&rows[0]["malformed"], &rows[1]["malformed"]), (&lines[0].into(), &lines[1].into()));
    assert_eq!(rows[2]["email"], 7);
    assert_eq!(server.requests(), ["p4@gmail.com"]);
    for expected in ["line 1: the line is not one JSON object", "line 3: the field email is not a string"] {
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("@gmail"), "{}", ran.stderr);
}

#[test]
fn stops_at_an_unreadable_row_after_answering_earlier_rows() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let file = enrich.file("crm.csv", "email,n\np0@gmail.com,1\np1@gmail.com,\"x\n");
    let mut command = enrich.command(&bulk(&server.url, "enr_x", &["-"]));
    let out = command.stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(
        !out.status.success() && stderr.contains("stopped after 1 row: stdin: line 3: the quote"),
        "{stderr}"
    );
    assert_eq!(stdout.lines().count(), 2);
}
