//! Starts a PostgreSQL server for all tests of a run: the setup script of nextest in `.config/nextest.toml`.
//! The server stops when nextest ends.

#![allow(clippy::unwrap_used, reason = "a panic fails the run")]

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::parent_id;

use enrich_tests::servers::Postgres;

fn main() {
    let mut variables = File::options().append(true).open(env::var_os("NEXTEST_ENV").unwrap()).unwrap();
    writeln!(variables, "{}", Postgres::share(parent_id())).unwrap();
}
