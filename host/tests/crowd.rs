//! 10,000 connections that say nothing, half a head or half a body, on the real process: those who speak are answered,
//! memory stays bounded, and the crowd is shown out. Those who were answered and stay take next to nothing.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]
#![allow(clippy::print_stderr, reason = "what was measured is worth reading")]

mod enrich;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use enrich::{Client, Enrich, Server, eventually};

const CROWD: u64 = 10_000;
const CROWD_MIN: u64 = 1_000;
const STAYERS: u64 = 2_000;
const GOOD_CLIENTS: u64 = 16;
/// How long the first of the crowd is let wait for the last: a machine that is busy takes a while to bring them all in.
const JOIN_MS_MAX: u64 = 20_000;
/// What else has a file descriptor, on either side: who stays is here at the same time.
const OTHER_FILES: u64 = STAYERS + 200;
/// Of the server, in bytes: with everybody there. A debug build takes more than one that is released.
const RSS_MAX: u64 = 400_000_000;
/// Of it, for a connection that is idle. hyper alone takes 12 KB, which are there only while it is not.
const IDLE_BYTES_MAX: u64 = 8_000;
const EMAIL: &str = "ada.marlowe@gmail.com";

#[test]
fn good_clients_are_served_while_a_crowd_says_nothing_or_half_of_it() {
    let crowd = CROWD.min(files_max().saturating_sub(OTHER_FILES));
    assert!(crowd >= CROWD_MIN, "`ulimit -n` allows only {crowd} connections; raise it");
    let (enrich, key) = Enrich::with_key(1_000_000_000, 1_000_000_000);
    let people = enrich.file("people.csv", format!("email,linkedin_url\n{EMAIL},linkedin.com/in/ada\n"));
    enrich.ok(&["people", "import", people.to_str().unwrap()]);
    let max = CROWD + OTHER_FILES;
    let limits = format!("[connections]\nmax = {max}\nhead_ms = {JOIN_MS_MAX}\nbody_ms = {JOIN_MS_MAX}\n");
    let config = enrich.file("enrich.toml", limits);
    let server = enrich.serve(&["--config", config.to_str().unwrap()]);
    let pid = server.pid();
    let (files_before, rss_before) = (files(pid), rss(pid));

    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (rss_crowded, answered_crowded) = std::thread::scope(|scope| {
        let mut members: Vec<_> = (0..crowd).map(|nth| Member::join(server.address(), nth, &key)).collect();
        // All at the same time: if some had been shown out before the last came, this would not come true.
        eventually("the crowd is inside", || (files(pid) >= files_before + crowd).then_some(()));
        // Not before: on a busy machine they would keep the crowd out for too long.
        for _ in 0..GOOD_CLIENTS {
            scope.spawn(|| ask_until(&is_over, &answered, &server, &key));
        }
        let before = answered.load(Ordering::SeqCst);
        eventually("answers amid the crowd", || {
            (answered.load(Ordering::SeqCst) > before + 500).then_some(())
        });
        let rss_crowded = rss(pid);

        // Nobody of the crowd leaves by himself.
        members.iter_mut().for_each(Member::is_shown_out);
        let answered_crowded = answered.load(Ordering::SeqCst);
        drop(members);
        eventually("files are closed", || (files(pid) <= files_before + 2 * GOOD_CLIENTS).then_some(()));
        is_over.store(true, Ordering::SeqCst);
        (rss_crowded, answered_crowded)
    });

    assert_eq!(server.connect().enrich(&key, EMAIL).unwrap().status, 200, "the next one is welcome");
    let bytes_each = rss_crowded.saturating_sub(rss_before) / crowd;
    eprintln!(
        "{crowd} connections: {} MB became {} MB, {bytes_each} bytes each; {answered_crowded} lookups were answered meanwhile",
        rss_before / 1_000_000,
        rss_crowded / 1_000_000
    );
    assert!(rss_crowded < RSS_MAX, "{rss_crowded} bytes");
    let spent = enrich.json(&["credits", "show", "demo", "--json"])["spent"].as_u64().unwrap();
    assert_eq!(spent, answered.load(Ordering::SeqCst) + 1, "the crowd cost nothing");
}

#[test]
fn those_who_stay_after_their_answers_take_little() {
    let (enrich, key) = Enrich::with_key(1_000_000_000, 1_000_000_000);
    let server = enrich.serve(&[]);
    let pid = server.pid();
    let ask = |client: &mut Client| assert_eq!(client.enrich(&key, EMAIL).unwrap().status, 404);
    // One that asks before makes what all share. It asks on meanwhile: memory is given back while there is something to do.
    let mut another = server.connect();
    (0..1_000).for_each(|_| ask(&mut another));
    let rss_before = rss(pid);

    let mut stayers: Vec<_> = (0..STAYERS).map(|_| server.connect()).collect();
    stayers.iter_mut().for_each(ask);
    let each = |rss: u64| rss.saturating_sub(rss_before) / STAYERS;
    let served_bytes = each(rss(pid));
    let idle_bytes = eventually("memory is given back", || {
        ask(&mut another);
        Some(each(rss(pid))).filter(|bytes| *bytes < IDLE_BYTES_MAX)
    });
    eprintln!("{STAYERS} connections that were served: {served_bytes} bytes each became {idle_bytes}");
    stayers.iter_mut().for_each(ask);
}

/// Lookups one after the other, now on the same connection, now on a new one: all of them are answered.
fn ask_until(is_over: &AtomicBool, answered: &AtomicU64, server: &Server, key: &str) {
    while !is_over.load(Ordering::SeqCst) {
        let mut client = server.connect();
        for _ in 0..8 {
            let reply = client.enrich(key, EMAIL).unwrap();
            assert_eq!(reply.status, 200, "{}", reply.body);
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// One of the crowd.
struct Member {
    stream: TcpStream,
    has_said: Said,
}

#[derive(Clone, Copy, PartialEq)]
enum Said {
    Nothing,
    HalfAHead,
    HalfABody,
}

impl Member {
    fn join(address: SocketAddr, nth: u64, key: &str) -> Self {
        let has_said = [Said::Nothing, Said::HalfAHead, Said::HalfABody][nth as usize % 3];
        let half_a_head =
            format!("POST /api/v1/person/enrich HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n");
        let half_a_body =
            format!("{half_a_head}Content-Type: application/json\r\nContent-Length: 40\r\n\r\n{{\"email\":");
        let mut stream = TcpStream::connect(address).unwrap();
        match has_said {
            Said::Nothing => {}
            Said::HalfAHead => stream.write_all(half_a_head.as_bytes()).unwrap(),
            Said::HalfABody => stream.write_all(half_a_body.as_bytes()).unwrap(),
        }
        Self { stream, has_said }
    }

    /// Reads up to the end that the server makes. A request that has begun is told why it ends.
    fn is_shown_out(&mut self) {
        self.stream.set_read_timeout(Some(enrich::PATIENCE)).unwrap();
        let mut told = String::new();
        // Reset or ended in order: either way it is over.
        match self.stream.read_to_string(&mut told) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server holds on"),
            _ => {}
        }
        let (start, end) = match self.has_said {
            Said::HalfABody => ("HTTP/1.1 400 ", r#"{"error":"invalid_request"}"#),
            Said::Nothing | Said::HalfAHead => ("", ""),
        };
        assert!(told.starts_with(start) && told.ends_with(end), "{told}");
    }
}

/// How many files this process, and the server that it starts, may have open: raised as far as that helps.
fn files_max() -> u64 {
    let [soft, hard] = limits_of_files();
    let wish = hard.min(CROWD + OTHER_FILES);
    if soft < wish {
        // The standard library has no call for it. Without the tool, there is what there is.
        let (pid, limit) = (std::process::id().to_string(), format!("--nofile={wish}:"));
        let _ = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    }
    limits_of_files()[0]
}

/// Soft and hard.
fn limits_of_files() -> [u64; 2] {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut limits = line.split_whitespace().map(|limit| limit.parse().unwrap_or(u64::MAX));
    [limits.next().unwrap(), limits.next().unwrap()]
}

/// How many files a process has open.
fn files(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64
}

/// What a process has in memory, in bytes.
fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}
