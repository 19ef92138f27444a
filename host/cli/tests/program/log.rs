//! The log, with a stderr that fails, stalls or fills up. Lookups, signals and billing must not depend on it.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::enrich::admin::Scrape;
use crate::enrich::disk::{Disk, with_mounts};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Client, EMAIL, Enrich, Server, eventually};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

#[test]
fn serves_as_usual_when_stderr_is_a_broken_pipe() {
    let (_, writer) = pipe().unwrap();
    serves_as_usual(writer);
}

#[test]
fn serves_as_usual_when_stderr_is_a_full_pipe() {
    let (_reader, writer) = pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // Blocks as soon as the pipe is full, and keeps it full.
    std::thread::spawn(move || filler.write_all(&[b'\n'; 1 << 20]));
    serves_as_usual(writer);
}

/// Checks that lookups are answered and billed once, that SIGHUP reloads, and that SIGTERM ends the server
/// after the lookup in flight.
fn serves_as_usual(stderr: impl Into<Stdio>) {
    const LOOKUPS: u64 = 50;
    let world = World::new();
    let server = world.serve(stderr, &[]);
    let mut client = server.connect();
    for _ in 0..LOOKUPS {
        assert_eq!(client.enrich(&world.key, EMAIL).unwrap().status, 200);
    }
    assert_eq!(world.credits("spent"), LOOKUPS);

    let new = Vendor::that(Behavior::Matches("new"));
    new.configure(&world.enrich, "");
    server.hang_up();
    let mut found = LOOKUPS;
    eventually("the new vendor receives requests", || {
        let reply = client.enrich(&world.key, EMAIL).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
        found += 1;
        reply.body["profile"]["linkedin_url"].as_str().unwrap().ends_with("new").then_some(())
    });
    drop(client);

    let requests = new.requests().len();
    new.set(Behavior::Hangs);
    std::thread::scope(|scope| {
        let in_flight = scope.spawn(|| server.connect().enrich(&world.key, EMAIL).unwrap());
        eventually("a lookup is in flight", || (new.requests().len() > requests).then_some(()));
        server.terminate();
        eventually("no connection is accepted", || Client::connect(server.address()).err());
        new.set(Behavior::Matches("new"));
        assert_eq!(in_flight.join().unwrap().status, 200);
    });
    let answered_at = Instant::now();
    server.stop();
    assert!(answered_at.elapsed() < Duration::from_secs(10), "{:?}", answered_at.elapsed());
    assert_eq!((world.credits("spent"), world.credits("held")), (found + 1, 0));
}

/// The lines that were written or refused by a disk that is full for a while are those of all lookups.
#[cfg(feature = "tools")]
#[test]
fn counts_the_lines_that_a_full_disk_refuses() {
    with_mounts("log::counts_the_lines_that_a_full_disk_refuses", || {
        const LOOKUPS: usize = 100;
        let world = World::new();
        let disk = Disk::mount(world.enrich.path("disk"));
        let path = world.enrich.path("disk/log");
        let (server, admin) = world.serve_monitored(File::create(&path).unwrap(), &[]);
        let log = || std::fs::read_to_string(&path).unwrap();
        eventually("the server logs that it serves", || log().contains("serving").then_some(()));
        let mut client = server.connect();
        for lookup in 0..LOOKUPS {
            match lookup {
                10 => disk.fill(),
                90 => disk.make_room(),
                _ => {}
            }
            assert_eq!(client.enrich(&world.key, EMAIL).unwrap().status, 200);
        }
        eventually("each line is written or counted", || {
            let (log, lost) = (log(), lost_lines(admin));
            let whole = log.lines().filter(|line| line.contains(" duration_us="));
            let whole: Vec<_> = whole.filter(|line| line.matches("lookup_id=").count() == 1).collect();
            // A line that was truncated within its last number is counted both as written and as lost.
            (lost > 0 && (LOOKUPS..=LOOKUPS + 1).contains(&(whole.len() + lost))).then_some(())
        });
        drop(client);
        server.stop();
    });
}

/// At debug level, each lookup logs two lines.
#[test]
fn stalled_reader_delays_no_lookup_and_lost_lines_are_counted() {
    const CLIENTS: usize = 4;
    const LOOKUPS: usize = 6_000;
    let world = World::new();
    let (reader, writer) = pipe().unwrap();
    let settings = ["ENRICH_LOG=enrich::lookup=debug", "ENRICH_LOG_FORMAT=json"];
    let (server, admin) = world.serve_monitored(writer, &settings);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..LOOKUPS {
                    assert_eq!(client.enrich(&world.key, "ada").unwrap().status, 400);
                }
            });
        }
    });
    assert_eq!(server.connect().enrich(&world.key, EMAIL).unwrap().status, 200);
    assert_eq!(world.credits("spent"), 1);
    let lost = lost_lines(admin);
    assert!(lost > 0);

    let reading = std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map(Result::unwrap);
        let lines = lines.map(|line| serde_json::from_str(&line).unwrap());
        lines.inspect(|line: &Value| assert_eq!(line["target"], "enrich::lookup")).count()
    });
    server.stop();
    assert_eq!(reading.join().unwrap() + lost, 2 * (CLIENTS * LOOKUPS + 1));
}

/// The HTTP/2 library would write a warning for each frame of a client without a key, and headers at trace level.
#[test]
fn level_is_that_of_the_programs_own_lines() {
    const UNSOLICITED_PING_ACK: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0unwanted";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0answered";
    let world = World::new();
    for (filter, debug_lines) in [("", 0), ("info, enrich::lookup=debug", 1), ("trace", 1)] {
        let filter = format!("ENRICH_LOG={filter}");
        let server = world.enrich.serve(&[&filter, "--config", world.config.to_str().unwrap()]);
        assert_eq!(server.connect().enrich(&world.key, EMAIL).unwrap().status, 200);
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        client.write_all(&[UNSOLICITED_PING_ACK, PING].concat()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut bytes, mut replies) = (BufReader::new(client).bytes(), Vec::new());
        while !replies.ends_with(b"answered") {
            replies.push(bytes.next().unwrap().unwrap());
        }
        drop(bytes);
        let log = server.stop();
        let is_own =
            |line: &str| line.split_whitespace().nth(2).is_some_and(|target| target.starts_with("enrich"));
        assert_eq!(log.lines().find(|line| !is_own(line)), None, "{filter}");
        assert_eq!(log.matches("INFO enrich::lookup").count(), 1, "{filter}: {log}");
        assert_eq!(log.matches("DEBUG enrich::lookup").count(), debug_lines, "{filter}: {log}");
    }
}

#[test]
fn colours_a_terminal_unless_no_color_is_set() {
    for (variables, is_coloured) in [(&[][..], true), (&["NO_COLOR="], true), (&["NO_COLOR=1"], false)] {
        let world = World::new();
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let stderr = rustix::fs::open(name, OFlags::WRONLY | OFlags::NOCTTY, Mode::empty()).unwrap();
        let server = world.serve(stderr, variables);
        let mut lines = BufReader::new(File::from(terminal)).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("serving")).unwrap();
        assert_eq!(line.contains("\x1b["), is_coloured, "{variables:?}: {line:?}");
        server.stop();
    }
}

/// A workspace with credits and a server with one vendor.
struct World {
    enrich: Enrich,
    key: String,
    config: PathBuf,
}

impl World {
    fn new() -> Self {
        let (enrich, key) = Enrich::with_key(1_000_000, 1_000_000);
        let config = Vendor::that(Behavior::Matches("old")).configure(&enrich, "");
        Self { enrich, key, config }
    }

    fn serve(&self, stderr: impl Into<Stdio>, args: &[&str]) -> Server {
        let config = ["--config", self.config.to_str().unwrap()];
        self.enrich.serve_logging_to(stderr, &[&config, args].concat())
    }

    /// Also returns the address of the admin listener.
    fn serve_monitored(&self, stderr: impl Into<Stdio>, args: &[&str]) -> (Server, SocketAddr) {
        // The lookup listener is found by its address, 127.0.0.1.
        let admin = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
        (self.serve(stderr, &[&[&*format!("ENRICH_ADMIN_LISTEN={admin}")], args].concat()), admin)
    }

    fn credits(&self, name: &str) -> u64 {
        self.enrich.credits("demo")[name].as_u64().unwrap()
    }
}

fn lost_lines(admin: SocketAddr) -> usize {
    Scrape::of(admin).value("enrich_log_lines_dropped_total").unwrap() as usize
}
