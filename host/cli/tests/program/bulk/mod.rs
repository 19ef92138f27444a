//! Tests `enrich bulk` with the real binary, against the real server or against a fake one that misbehaves.

mod answers;
mod https;
mod input;
mod limits;
mod model;
mod resume;

use std::path::Path;
use std::process::{Child, Stdio};

use crate::enrich::{Enrich, Ran};

/// Returns a table with the emails `p0` to `p…@gmail.com` and an additional column.
fn table(count: usize) -> String {
    (0..count).fold("row,email\n".to_owned(), |text, i| text + &format!("{i},p{i}@gmail.com\n"))
}

/// Creates a directory in which all `p…@gmail.com` up to `count` are found.
fn with_people(count: usize, credits: u64, limit: u64) -> (Enrich, String) {
    let (enrich, key) = Enrich::with_key(credits, limit);
    enrich.import(&(0..count).map(|i| format!("p{i}@gmail.com,linkedin.com/in/p-{i}\n")).collect::<String>());
    (enrich, key)
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
    Ran::of(child.wait_with_output().unwrap())
}

fn lines(out: &Path) -> usize {
    std::fs::read(out).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
}
