//! The servers that are compared, each as processes of its own.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use enrich_tests::servers::{Postgres, Redis};
use tempfile::TempDir;

/// How many people can be found.
const PEOPLE: usize = 10_000;

/// Never the limit of what is measured.
const CREDITS: &str = "1000000000000";
const LIMIT: &str = "4294967295";

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// HTTP and nothing else.
    Bare,
    /// The service with credits in SQLite and windows in memory.
    Sqlite,
    /// The service with credits in PostgreSQL and windows in Redis.
    Several,
    /// The same, on two nodes: the requests go to both, half and half.
    TwoNodes,
}

impl Kind {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare hyper",
            Self::Sqlite => "enrich, SQLite",
            Self::Several => "enrich, PostgreSQL and Redis",
            Self::TwoNodes => "the same, two nodes",
        }
    }
}

/// A server that runs, with all that it needs; dropped, it is killed.
pub struct Contender {
    nodes: Vec<Process>,
    /// What it is asked.
    pub requests: Vec<Vec<u8>>,
    _engines: Option<(Postgres, Redis)>,
    _dir: TempDir,
}

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Contender {
    /// Starts a server of this kind. `binaries` is where `enrich` and `bare` are.
    pub fn start(kind: Kind, binaries: &Path) -> io::Result<Self> {
        let dir = TempDir::new()?;
        let mut server = Self { nodes: Vec::new(), requests: Vec::new(), _engines: None, _dir: dir };
        if kind == Kind::Bare {
            server.nodes.push(Process::start(Command::new(binaries.join("bare")))?);
            server.requests = requests("enr_none");
            return Ok(server);
        }
        let mut enrich =
            Enrich { binary: binaries.join("enrich"), data: server._dir.path().join("data"), stores: None };
        if matches!(kind, Kind::Several | Kind::TwoNodes) {
            let (postgres, redis) = (Postgres::start_with(&["fsync=on"], &[]), Redis::start());
            enrich.stores = Some((postgres.tcp_url("postgres"), redis.url()));
            server._engines = Some((postgres, redis));
            enrich.run(&["migrate"])?;
        }
        enrich.run(&["workspace", "create", "bench", "--credits", CREDITS, "--limit", LIMIT])?;
        let key = enrich.run(&["key", "create", "bench", "rig"])?;
        enrich.import(&server._dir.path().join("people.csv"))?;
        for _ in 0..if kind == Kind::TwoNodes { 2 } else { 1 } {
            server.nodes.push(Process::start(enrich.serve())?);
        }
        server.requests = requests(key.trim());
        Ok(server)
    }

    /// Where its nodes listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }
}

struct Enrich {
    binary: PathBuf,
    data: PathBuf,
    /// The URLs of PostgreSQL and Redis.
    stores: Option<(String, String)>,
}

impl Enrich {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().env("ENRICH_DATA", &self.data).env("ENRICH_LOG", "warn").args(args);
        if let Some((postgres, _)) = &self.stores {
            command.env("ENRICH_DATABASE", postgres);
        }
        command
    }

    fn run(&self, args: &[&str]) -> io::Result<String> {
        let out = self.command(args).output()?;
        if !out.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn import(&self, file: &Path) -> io::Result<()> {
        let mut people = "email,linkedin_url\n".to_owned();
        for person in 0..PEOPLE {
            let _ = writeln!(people, "{},linkedin.com/in/person-{person}", email(person));
        }
        std::fs::write(file, people)?;
        self.run(&["people", "import", &file.to_string_lossy()]).map(drop)
    }

    fn serve(&self) -> Command {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("ENRICH_LOG", "info,enrich::lookup=warn");
        if let Some((_, redis)) = &self.stores {
            command.env("ENRICH_WINDOWS", redis);
        }
        command
    }
}

impl Process {
    /// Starts it, and reads where it listens from what it says.
    fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            if said.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the server did not start"));
            }
            let address = line.split_once("http://").map(|(_, rest)| rest.trim_end().trim_end_matches('"'));
            if let Some(address) = address.and_then(|address| address.parse().ok()) {
                break address;
            }
        };
        // Read on, or a server whose log fills the pipe stands still.
        thread::spawn(move || io::copy(&mut said.by_ref(), &mut io::sink()));
        Ok(Self { child, address })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn email(person: usize) -> String {
    format!("person{person}@gmail.com")
}

/// A request for each person.
fn requests(key: &str) -> Vec<Vec<u8>> {
    let request = |person| {
        let body = format!(r#"{{"email":"{}"}}"#, email(person));
        format!(
            "POST /api/v1/person/enrich HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    (0..PEOPLE).map(request).collect()
}

impl std::fmt::Debug for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contender").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}
