//! The program that counts instructions.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

#[test]
fn ends_quietly_when_its_reader_has_ended() {
    let (stdout, _) = UnixStream::pair().unwrap();
    stdout.shutdown(Shutdown::Write).unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_instructions"))
        .arg("--help")
        .stdout(OwnedFd::from(stdout))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!((program.status.code(), program.stderr.as_slice()), (Some(0), &b""[..]));
}
