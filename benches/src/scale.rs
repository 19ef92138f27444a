//! Growth with the number of workspaces, people and connections: CPU time per request, memory, startup time.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use enrich_lib::key::ApiKey;
use enrich_store::grouped;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::dataset;
use crate::load::Pace;
use crate::machine;
use crate::servers::{EnrichCommand, Launcher, Process};
use crate::table::median;

/// Number of connections that send requests.
const CONNECTIONS: usize = 64;

/// Number of idle connections: one less than the default limit of `enrich serve`, as another one sends
/// requests meanwhile.
const IDLE: usize = 9_999;

/// Number of measurements of each cost. The median is reported.
const ROUNDS: usize = 3;

/// Maximum number of different requests, of 200 bytes each.
const REQUESTS_MAX: usize = 1 << 20;

/// How long memory must stop shrinking to count as settled: longer than the server remembers settled holds
/// (one minute), and longer than a connection must be idle before the server frees its buffers.
const HOLDS_EXPIRED_AFTER: Duration = Duration::from_secs(75);
const BUFFERS_FREED_AFTER: Duration = Duration::from_secs(15);

/// Number of people in the measurements of workspaces.
const PEOPLE_MIN: usize = 1_000;

/// The configuration of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// How to start servers.
    pub launcher: &'a Launcher,
    /// The core of the servers and the core of this thread, if they are pinned.
    pub cores: Option<(usize, usize)>,
    /// Duration of each round.
    pub time: Duration,
    /// Called with each result as soon as it is available, as all measurements together take minutes.
    pub on_result: fn(&str, &Point),
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
    /// Result for the largest number of workspaces after their settled holds have expired, with requests of
    /// only one of them.
    pub one_active: Point,
    /// Results by number of people.
    pub people: Vec<Point>,
    /// Server memory per connection that has been idle for some seconds, in bytes.
    pub idle_connection: u64,
}

impl Scale<'_> {
    /// Runs all measurements. Takes minutes with a million workspaces and people.
    pub fn measure(&self, workspaces_max: usize, people_max: usize) -> Result<Curves, Box<dyn Error>> {
        let counts = [1, 1_000, 100_000, 1_000_000].into_iter().filter(|count| *count <= workspaces_max);
        let largest = counts.clone().next_back().ok_or("--workspaces-max must be at least 1")?;
        let mut workspaces = Vec::new();
        for count in counts.filter(|count| *count < largest) {
            let dir = TempDir::new()?;
            let server = self.serve_workspaces(&dir, count)?;
            workspaces.push(
                self.report(
                    "workspaces",
                    self.measure_server(&server, count, &requests_of_workspaces(count))?,
                ),
            );
        }
        let dir = TempDir::new()?;
        let server = self.serve_workspaces(&dir, largest)?;
        let requests = requests_of_workspaces(largest);
        workspaces.push(self.report("workspaces", self.measure_server(&server, largest, &requests)?));
        wait_for_stable_memory(&server, &requests[..1], HOLDS_EXPIRED_AFTER)?;
        let one_active = self
            .report("workspaces, requests of one", self.measure_server(&server, largest, &requests[..1])?);
        drop(server);

        let mut people = Vec::new();
        for count in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
            if count <= people_max {
                people.push(self.report("people", self.measure_people(count)?));
            }
        }
        Ok(Curves { workspaces, one_active, people, idle_connection: self.measure_idle_connection()? })
    }

    fn report(&self, data: &str, point: Point) -> Point {
        (self.on_result)(data, &point);
        point
    }

    /// Starts a server with `count` workspaces.
    fn serve_workspaces(&self, dir: &TempDir, count: usize) -> Result<Process, Box<dyn Error>> {
        let enrich = EnrichCommand::new(self.launcher, dir.path());
        drop(enrich.create_workspace("bench", 1)?);
        enrich.import_people(PEOPLE_MIN)?;
        insert_workspaces(&enrich.data_dir().join("accounts.db"), count)?;
        Ok(self.serve(&enrich)?)
    }

    /// Measures a server with `count` people, with all requests from one workspace.
    fn measure_people(&self, count: usize) -> Result<Point, Box<dyn Error>> {
        let dir = TempDir::new()?;
        let enrich = EnrichCommand::new(self.launcher, dir.path());
        let key = enrich.create_workspace("bench", u32::MAX)?;
        enrich.import_people(count)?;
        let requests: Vec<_> = shuffled(count).map(|person| dataset::request(key.reveal(), person)).collect();
        self.measure_server(&self.serve(&enrich)?, count, &requests)
    }

    fn measure_idle_connection(&self) -> Result<u64, Box<dyn Error>> {
        machine::raise_open_file_limit()?;
        let dir = TempDir::new()?;
        let enrich = EnrichCommand::new(self.launcher, dir.path());
        let key = enrich.create_workspace("bench", u32::MAX)?;
        enrich.import_people(PEOPLE_MIN)?;
        let server = self.serve(&enrich)?;
        let requests = [dataset::request(key.reveal(), 0)];
        // Requests on another connection allocate what all connections share.
        server.load(1, &requests).connect()?.run(Pace::Count(1_000))?;
        let before = machine::memory(server.pid())?;
        let mut idle = server.load(IDLE, &requests).connect()?;
        idle.run(Pace::Count(IDLE as u64))?;
        Ok(wait_for_stable_memory(&server, &requests, BUFFERS_FREED_AFTER)?.saturating_sub(before)
            / IDLE as u64)
    }

    fn serve(&self, enrich: &EnrichCommand<'_>) -> io::Result<Process> {
        let Some((servers, ours)) = self.cores else { return enrich.serve(&[]) };
        machine::pin(servers)?;
        let server = enrich.serve(&[]);
        machine::pin(ours)?;
        server
    }

    fn measure_server(
        &self,
        server: &Process,
        count: usize,
        requests: &[Vec<u8>],
    ) -> Result<Point, Box<dyn Error>> {
        let mut load = server.load(CONNECTIONS, requests).connect()?;
        // Warm-up: one request for each.
        load.run(Pace::Count(requests.len().max(PEOPLE_MIN) as u64))?;
        let memory = machine::memory(server.pid())?;
        let (mut cpu, mut per_second) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = machine::cpu_time(server.pid())?;
            let measured = load.run(Pace::Closed(self.time))?;
            let time = machine::cpu_time(server.pid())? - before;
            cpu.push(time.as_secs_f64() / measured.answered as f64);
            per_second.push(measured.per_second());
        }
        cpu.sort_by(f64::total_cmp);
        per_second.sort_by(f64::total_cmp);
        Ok(Point {
            count,
            cpu: Duration::from_secs_f64(median(&cpu)),
            per_second: median(&per_second),
            start: server.startup_time,
            memory,
        })
    }
}

/// Waits, under light load, until a server's memory has not shrunk for `stable_for`. Returns its memory, in
/// bytes.
fn wait_for_stable_memory(server: &Process, requests: &[Vec<u8>], stable_for: Duration) -> io::Result<u64> {
    const PAUSE: Duration = Duration::from_millis(500);
    const TIME_MAX: Duration = Duration::from_secs(180);

    let mut load = server.load(1, requests).connect()?;
    let began = Instant::now();
    let (mut lowest, mut since) = (machine::memory(server.pid())?, began);
    while since.elapsed() < stable_for && began.elapsed() < TIME_MAX {
        thread::sleep(PAUSE);
        load.run(Pace::Count(PEOPLE_MIN as u64))?;
        let now = machine::memory(server.pid())?;
        // Ignores changes of less than 0.1 %.
        if now < lowest - lowest / 1_000 {
            (lowest, since) = (now, Instant::now());
        }
    }
    Ok(lowest)
}

/// Returns one request for each of `count` workspaces.
fn requests_of_workspaces(count: usize) -> Vec<Vec<u8>> {
    shuffled(count)
        .map(|workspace| dataset::request(key(workspace).reveal(), workspace % PEOPLE_MIN))
        .collect()
}

/// Returns the key of a workspace.
fn key(workspace: usize) -> ApiKey {
    dataset::key(1_000 + workspace as u64)
}

/// Iterates over the numbers below `count`, a power of ten, in an order in which neighbours are far apart.
fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    /// Coprime to all powers of ten.
    const STEP: usize = 7_368_787;
    (0..count.min(REQUESTS_MAX)).map(move |nth| nth * STEP % count)
}

/// Inserts `count` workspaces with one key each. With the command line, a million would take minutes.
fn insert_workspaces(accounts: &Path, count: usize) -> rusqlite::Result<()> {
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
            "INSERT INTO api_key (id, workspace, label, digest, masked, created_by, created_at)
             VALUES (?, ?, 'scale', ?, ?, 'operator', 0)",
        )?;
        for nth in 0..count {
            let row = workspace.insert([format!("workspace-{nth}")])?;
            grant.execute([row])?;
            let key = key(nth);
            // Its public id is not used. That of the digest would repeat in a million keys.
            insert_key.execute(params![nth, row, key.digest().as_bytes(), key.masked()])?;
        }
    }
    tx.commit()
}

impl fmt::Display for Curves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| data | requests/s | CPU µs | memory MB | start ms |\n|---|---:|---:|---:|---:|")?;
        for point in &self.workspaces {
            row(f, &format!("{} workspaces with a key", grouped(point.count as u64)), point)?;
        }
        row(
            f,
            &format!("{} workspaces, requests of one", grouped(self.one_active.count as u64)),
            &self.one_active,
        )?;
        for point in &self.people {
            row(f, &format!("{} people", grouped(point.count as u64)), point)?;
        }
        let each = |first: &Point, last: &Point| {
            last.memory.saturating_sub(first.memory) / (last.count - first.count).max(1) as u64
        };
        if let [one, .., most] = &self.workspaces[..] {
            let (warm, cold) = (each(one, most), each(one, &self.one_active));
            writeln!(
                f,
                "\nA workspace with its key: {warm} bytes, and {cold} after one minute without requests."
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
