//! Input files: errors are reported with their line, and no content is lost.

use super::bulk;
use crate::enrich::Enrich;
use crate::fake::{FakeServer, found};

#[test]
fn rejects_unusable_files_without_a_request() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    for (content, expected_text, advice) in [
        ("Mail,Name\np0@gmail.com,P\n", "there is no column email; the columns are Mail, Name", "--column"),
        ("email|name\np0@gmail.com|P\n", "there is no column email", "sep=|"),
        ("email,Status\np0@gmail.com,P\n", "line 1: the column status already exists", "--prefix"),
        ("email,n\np0@gmail.com,1\np1@gmail.com,\"x\np2@gmail.com,y\n", "line 3: the quote that opens", ""),
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
