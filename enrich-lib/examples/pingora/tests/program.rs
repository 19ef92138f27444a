//! The program: its command line and its output.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn program(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enrich-pingora"));
    command.args(args).env("RUST_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends the request of the printed curl command.
#[test]
fn printed_curl_command_works_and_log_contains_no_personal_data() {
    let mut gateway = program(&["--listen", "127.0.0.1:0"]);
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines().map(Result::unwrap);
    let curl = lines.find(|line| line.starts_with("curl ")).unwrap();
    let quoted: Vec<_> = curl.split('\'').collect();
    let [url, authorization, _, content_type, _, body, ..] = quoted[..] else { panic!("{curl}") };
    let (address, path) =
        url.trim_start_matches("curl -i http://").trim_end_matches(" -H ").split_once('/').unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\n{authorization}\r\n{content_type}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );

    let mut tcp = connect(address);
    tcp.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    tcp.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains("linkedin.com/in/sample"), "{reply}");

    gateway.kill().unwrap();
    let log = String::from_utf8(gateway.wait_with_output().unwrap().stderr).unwrap();
    assert!(log.contains("workspace=demo found status=200 credits=1"), "{log}");
    for secret in ["ada", "enr_", "linkedin"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

#[test]
fn reports_address_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = program(&["--listen", &address]).wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.starts_with(&format!("error: cannot listen on {address}: ")), "{error}");
}

/// Retries, because the program prints the curl command before it listens.
fn connect(address: &str) -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(tcp) => break tcp,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
