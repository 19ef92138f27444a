//! Tests `enrich bulk` with the real binary, against the real server or against a fake one that misbehaves.

mod answers;
mod input;
mod limits;
mod resume;
mod retry;

use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::enrich::{Enrich, Ran, eventually};

/// Returns an import file with the people `p0` to `p…@gmail.com`.
fn people(count: usize) -> String {
    (0..count).fold("email,linkedin_url\n".to_owned(), |mut text, i| {
        writeln!(text, "p{i}@gmail.com,https://www.linkedin.com/in/p-{i}").unwrap();
        text
    })
}

/// Returns the emails of [`people`] as a table with an additional column.
fn table(count: usize) -> String {
    (0..count).fold("row,email\n".to_owned(), |mut text, i| {
        writeln!(text, "{i},p{i}@gmail.com").unwrap();
        text
    })
}

/// Creates a directory in which all `p…@gmail.com` up to `count` are found.
fn with_people(count: usize, credits: u64, limit: u64) -> (Enrich, String) {
    let (enrich, key) = Enrich::with_key(credits, limit);
    let file = enrich.file("people.csv", people(count));
    enrich.ok(&["people", "import", file.to_str().unwrap()]);
    (enrich, key)
}

fn spent(enrich: &Enrich) -> u64 {
    enrich.credits("demo")["spent"].as_u64().unwrap()
}

/// Returns the arguments of `bulk` with a key and a server.
fn bulk<'a>(url: &'a str, key: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["bulk", "--key", key, "--url", url], args].concat()
}

/// Starts a run that the test interrupts.
fn start(enrich: &Enrich, args: &[&str]) -> Child {
    enrich.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait(child: Child) -> Ran {
    let out = child.wait_with_output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
    Ran { stdout, stderr, success: out.status.success(), code: out.status.code() }
}

/// Waits until OUT has at least this number of complete rows.
fn wait_for_rows(out: &Path, rows: usize) {
    eventually("rows", || (lines(out) > rows).then_some(()));
}

fn lines(out: &Path) -> usize {
    std::fs::read(out).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
}
