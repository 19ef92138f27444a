//! Growth with the number of workspaces, people and connections: CPU time per request, memory, startup time.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use enrich_lib::key::ApiKey;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::contender::{Enrich, Launch, Process};
use crate::load::Pace;
use crate::machine;
use crate::plot::{Panel, Series, svg};
use crate::table::middle;
use crate::world;

/// Number of connections that send requests.
const CONNECTIONS: usize = 64;

/// Number of idle connections: one less than the default limit of `enrich serve`, as another one sends requests meanwhile.
const IDLE: usize = 9_999;

/// Number of measurements of each cost. The median is reported.
const ROUNDS: usize = 3;

/// Maximum number of different requests, of 200 bytes each.
const REQUESTS_MAX: usize = 1 << 20;

/// How long memory must stop shrinking to count as settled: longer than the server remembers settled holds (one minute), and
/// longer than a connection must be idle before the server frees its buffers.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(75);
const RESTED_AFTER: Duration = Duration::from_secs(15);

/// Number of people in the measurements of workspaces.
const FEW: usize = 1_000;

/// The configuration of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// How to start servers.
    pub launch: &'a Launch,
    /// The core of the servers and the core of this thread, if they are pinned.
    pub cores: Option<(usize, usize)>,
    /// Duration of each round.
    pub time: Duration,
    /// Called with each result as soon as it is available, as all measurements together take minutes.
    pub tell: fn(&str, &Point),
}

/// The results for one amount of data.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Number of workspaces (with one key each) or people.
    pub count: usize,
    /// CPU time per request.
    pub cpu: Duration,
    /// Replies per second.
    pub per_second: f64,
    /// Time between the server's start and its readiness.
    pub start: Duration,
    /// Memory after one request for each, in bytes.
    pub memory: u64,
}

/// The results of all measurements.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Results by number of workspaces. All workspaces send equally many requests.
    pub workspaces: Vec<Point>,
    /// Result for the largest number of workspaces after their settled holds have expired, with requests of only one of
    /// them.
    pub hot: Point,
    /// Results by number of people.
    pub people: Vec<Point>,
    /// Server memory per connection that has been idle for some seconds, in bytes.
    pub idle_connection: u64,
}

impl Scale<'_> {
    /// Runs all measurements. Takes minutes with a million workspaces and people.
    pub fn measure(&self, workspaces_max: usize, people_max: usize) -> Result<Curves, Box<dyn Error>> {
        let counts = [1, 1_000, 100_000, 1_000_000].into_iter().filter(|count| *count <= workspaces_max);
        let most = counts.clone().next_back().ok_or("there is to be one workspace at least")?;
        let mut workspaces = Vec::new();
        for count in counts.filter(|count| *count < most) {
            let dir = TempDir::new()?;
            let server = self.serve_workspaces(&dir, count)?;
            workspaces.push(self.told("workspaces", self.point(&server, count, &of_workspaces(count))?));
        }
        let dir = TempDir::new()?;
        let server = self.serve_workspaces(&dir, most)?;
        let requests = of_workspaces(most);
        workspaces.push(self.told("workspaces", self.point(&server, most, &requests)?));
        settle(&server, &requests[..1], FORGOTTEN_AFTER)?;
        let hot = self.told("workspaces, one is asked for", self.point(&server, most, &requests[..1])?);
        drop(server);

        let mut people = Vec::new();
        for count in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
            if count <= people_max {
                people.push(self.told("people", self.of_people(count)?));
            }
        }
        Ok(Curves { workspaces, hot, people, idle_connection: self.of_an_idle_connection()? })
    }

    fn told(&self, what: &str, point: Point) -> Point {
        (self.tell)(what, &point);
        point
    }

    /// Starts a server with `count` workspaces.
    fn serve_workspaces(&self, dir: &TempDir, count: usize) -> Result<Process, Box<dyn Error>> {
        let enrich = Enrich::new(self.launch, dir.path());
        enrich.create("bench", 1)?;
        enrich.import(FEW)?;
        fill(&enrich.data().join("accounts.db"), count)?;
        Ok(self.serve(&enrich)?)
    }

    /// Measures a server with `count` people, with all requests from one workspace.
    fn of_people(&self, count: usize) -> Result<Point, Box<dyn Error>> {
        let dir = TempDir::new()?;
        let enrich = Enrich::new(self.launch, dir.path());
        let key = enrich.create("bench", u32::MAX)?;
        enrich.import(count)?;
        let requests: Vec<_> = mixed(count).map(|person| world::request(key.reveal(), person)).collect();
        self.point(&self.serve(&enrich)?, count, &requests)
    }

    fn of_an_idle_connection(&self) -> Result<u64, Box<dyn Error>> {
        machine::allow_open_files()?;
        let dir = TempDir::new()?;
        let enrich = Enrich::new(self.launch, dir.path());
        let key = enrich.create("bench", u32::MAX)?;
        enrich.import(FEW)?;
        let server = self.serve(&enrich)?;
        let requests = [world::request(key.reveal(), 0)];
        // Requests on another connection allocate what all connections share.
        server.load(1, &requests).connect()?.run(Pace::Number(1_000))?;
        let before = machine::memory(server.pid())?;
        let mut idle = server.load(IDLE, &requests).connect()?;
        idle.run(Pace::Number(IDLE as u64))?;
        Ok(settle(&server, &requests, RESTED_AFTER)?.saturating_sub(before) / IDLE as u64)
    }

    fn serve(&self, enrich: &Enrich<'_>) -> io::Result<Process> {
        let Some((servers, ours)) = self.cores else { return enrich.serve() };
        machine::pin(servers)?;
        let server = enrich.serve();
        machine::pin(ours)?;
        server
    }

    fn point(&self, server: &Process, count: usize, requests: &[Vec<u8>]) -> Result<Point, Box<dyn Error>> {
        let mut asking = server.load(CONNECTIONS, requests).connect()?;
        // Warm-up: one request for each.
        asking.run(Pace::Number(requests.len().max(FEW) as u64))?;
        let memory = machine::memory(server.pid())?;
        let (mut cpu, mut per_second) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = machine::cpu_time(server.pid())?;
            let measured = asking.run(Pace::Closed(self.time))?;
            let time = machine::cpu_time(server.pid())? - before;
            cpu.push(time.as_secs_f64() / measured.answered as f64);
            per_second.push(measured.per_second());
        }
        cpu.sort_by(f64::total_cmp);
        per_second.sort_by(f64::total_cmp);
        Ok(Point {
            count,
            cpu: Duration::from_secs_f64(middle(&cpu)),
            per_second: middle(&per_second),
            start: server.started_in,
            memory,
        })
    }
}

/// Waits, under light load, until a server's memory has not shrunk for `calm`. Returns its memory, in bytes.
fn settle(server: &Process, requests: &[Vec<u8>], calm: Duration) -> io::Result<u64> {
    const PAUSE: Duration = Duration::from_millis(500);
    const TIME_MAX: Duration = Duration::from_secs(180);

    let mut asking = server.load(1, requests).connect()?;
    let began = Instant::now();
    let (mut least, mut since) = (machine::memory(server.pid())?, began);
    while since.elapsed() < calm && began.elapsed() < TIME_MAX {
        thread::sleep(PAUSE);
        asking.run(Pace::Number(FEW as u64))?;
        let now = machine::memory(server.pid())?;
        // Ignores changes of less than 0.1 %.
        if now < least - least / 1_000 {
            (least, since) = (now, Instant::now());
        }
    }
    Ok(least)
}

/// Returns one request for each of `count` workspaces.
fn of_workspaces(count: usize) -> Vec<Vec<u8>> {
    mixed(count).map(|workspace| world::request(key(workspace).reveal(), workspace % FEW)).collect()
}

/// Returns the key of a workspace.
fn key(workspace: usize) -> ApiKey {
    world::key(1_000 + workspace as u64)
}

/// Iterates over the numbers below `count`, a power of ten, in an order in which neighbours are far apart.
fn mixed(count: usize) -> impl Iterator<Item = usize> {
    /// Coprime to all powers of ten.
    const STEP: usize = 7_368_787;
    (0..count.min(REQUESTS_MAX)).map(move |nth| nth * STEP % count)
}

/// Inserts `count` workspaces with one key each. With the command line, a million would take minutes.
fn fill(accounts: &Path, count: usize) -> rusqlite::Result<()> {
    /// Digests arrive in random order, so their index must stay in memory while it grows.
    const CACHE_KIB: i64 = 1 << 20;

    let mut db = Connection::open(accounts)?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    db.pragma_update(None, "synchronous", "OFF")?;
    db.pragma_update(None, "foreign_keys", false)?;
    let tx = db.transaction()?;
    {
        let mut workspace = tx.prepare(
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at, granted)
             VALUES (?, 4294967295, 86400, 0, 1000000000)",
        )?;
        let mut grant =
            tx.prepare("INSERT INTO credit_grant (workspace, credits, at) VALUES (?, 1000000000, 0)")?;
        let mut insert_key = tx.prepare(
            "INSERT INTO api_key (id, workspace, label, digest, masked, created_at) VALUES (?, ?, 'scale', ?, ?, 0)",
        )?;
        for nth in 0..count {
            let row = workspace.insert([format!("workspace-{nth}")])?;
            grant.execute([row])?;
            let key = key(nth);
            insert_key.execute(params![format!("key_{nth}"), row, key.digest().as_bytes(), key.masked()])?;
        }
    }
    tx.commit()
}

impl Curves {
    /// Draws the curves as an SVG for light and dark pages.
    pub fn plot(&self) -> String {
        let series = |name, points: &[Point], of: &dyn Fn(&Point) -> f64| Series {
            name,
            points: points.iter().map(|point| (point.count as f64, of(point))).collect(),
        };
        let panel = |title, of: &dyn Fn(&Point) -> f64| Panel {
            title,
            series: vec![series("workspaces", &self.workspaces, of), series("people", &self.people, of)],
        };
        svg(&[
            panel("CPU time of a request, µs", &|point| point.cpu.as_secs_f64() * 1e6),
            panel("Memory of the server, MB", &|point| point.memory as f64 / 1e6),
            panel("Time to start, ms", &|point| point.start.as_secs_f64() * 1e3),
        ])
    }
}

impl fmt::Display for Curves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| data | requests/s | CPU µs | memory MB | start ms |\n|---|---:|---:|---:|---:|")?;
        for point in &self.workspaces {
            row(f, &format!("{} workspaces with a key", grouped(point.count)), point)?;
        }
        row(f, &format!("{} workspaces, one is asked for", grouped(self.hot.count)), &self.hot)?;
        for point in &self.people {
            row(f, &format!("{} people", grouped(point.count)), point)?;
        }
        let each = |first: &Point, last: &Point| {
            last.memory.saturating_sub(first.memory) / (last.count - first.count).max(1) as u64
        };
        if let [one, .., most] = &self.workspaces[..] {
            let (warm, cold) = (each(one, most), each(one, &self.hot));
            writeln!(
                f,
                "\nA workspace with its key: {warm} bytes, and {cold} once it has not asked for a minute."
            )?;
        }
        if let [few, .., most] = &self.people[..] {
            writeln!(f, "\nA person: {} bytes.", each(few, most))?;
        }
        writeln!(f, "\nAn idle connection: {} bytes.", self.idle_connection)
    }
}

fn row(f: &mut fmt::Formatter<'_>, data: &str, point: &Point) -> fmt::Result {
    let (cpu_us, start_ms) = (point.cpu.as_secs_f64() * 1e6, point.start.as_secs_f64() * 1e3);
    let (per_second, memory_mb) = (point.per_second, point.memory as f64 / 1e6);
    writeln!(f, "| {data} | {per_second:.0} | {cpu_us:.1} | {memory_mb:.0} | {start_ms:.0} |")
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_as_people_read_them() {
        assert_eq!([1, 999, 1_000, 1_000_005].map(grouped), ["1", "999", "1,000", "1,000,005"]);
    }

    #[test]
    fn a_mixed_order_has_each_number_once() {
        let mut all: Vec<_> = mixed(10_000).collect();
        assert_ne!(all[1], 1);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10_000));
    }
}
