//! The measured servers, each in processes of its own.

use std::any::Any;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use enrich_lib::key::ApiKey;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::dataset::{self, Case, Keys, PEOPLE};
use crate::load::Load;
use crate::machine;
use crate::memory::CREDITS;
use crate::server_kind::ServerKind;

/// How to start servers.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The directory of `enrich`, `bare` and `memory`.
    pub binaries: PathBuf,
    /// The command that runs the server, with its arguments, for example `strace`. Empty for none.
    pub wrapper: Vec<String>,
    /// Starts PostgreSQL and Redis. `None` if no server of several nodes is started.
    pub stores: Option<fn() -> SharedStores>,
    /// Logs each lookup, as the server does by default.
    pub logs_lookups: bool,
}

/// Running PostgreSQL and Redis servers.
pub struct SharedStores {
    /// The URL of PostgreSQL.
    pub postgres: String,
    /// The URL of Redis.
    pub redis: String,
    /// Stops the servers on drop.
    pub processes: Box<dyn Any>,
}

impl Launcher {
    /// Uses the binaries in the directory of the current executable.
    pub fn beside_current_exe() -> io::Result<Self> {
        let this = std::env::current_exe()?;
        Ok(Self::in_dir(this.parent().unwrap_or(Path::new(""))))
    }

    /// Uses the binaries in a directory.
    pub fn in_dir(binaries: &Path) -> Self {
        Self { binaries: binaries.to_owned(), wrapper: Vec::new(), stores: None, logs_lookups: false }
    }

    fn enrich(&self) -> PathBuf {
        self.binaries.join("enrich")
    }

    /// Returns a command with an empty environment except for the filter of the log.
    fn command(&self, binary: &Path) -> Command {
        let mut command = match &self.wrapper[..] {
            [] => Command::new(binary),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(binary);
                command
            }
        };
        let filter = if self.logs_lookups { "info" } else { "info,enrich::lookup=warn" };
        command.env_clear().env("ENRICH_LOG", filter);
        command
    }
}

/// A running server with its dependencies. It is killed on drop.
pub struct Server {
    /// The kind of server.
    pub kind: ServerKind,
    /// Logs each lookup.
    logs_lookups: bool,
    nodes: Vec<Process>,
    keys: Keys,
    _stores: Option<Box<dyn Any>>,
    _dir: TempDir,
}

impl Server {
    /// Starts a server of this kind.
    pub fn start(kind: ServerKind, launcher: &Launcher) -> io::Result<Self> {
        let dir = TempDir::new()?;
        let (logs_lookups, keys) = (launcher.logs_lookups, Keys::default());
        let mut server = Self { kind, logs_lookups, nodes: Vec::new(), keys, _stores: None, _dir: dir };
        match kind {
            ServerKind::Bare | ServerKind::Memory => {
                let command = launcher.command(&launcher.binaries.join(kind.into_str()));
                server.nodes.push(Process::start(command)?);
            }
            _ => server.start_enrich(launcher)?,
        }
        server.exhaust_rate_limit()?;
        Ok(server)
    }

    /// Starts PostgreSQL and Redis, and returns their URLs.
    fn start_stores(&mut self, launcher: &Launcher) -> io::Result<(String, String)> {
        let start = launcher.stores.ok_or_else(|| io::Error::other("this server needs shared stores"))?;
        let SharedStores { postgres, redis, processes } = start();
        self._stores = Some(processes);
        Ok((postgres, redis))
    }

    fn start_enrich(&mut self, launcher: &Launcher) -> io::Result<()> {
        let stores = if self.kind == ServerKind::Sqlite { None } else { Some(self.start_stores(launcher)?) };
        let mut enrich = EnrichCommand::new(launcher, self._dir.path());
        enrich.stores = stores;
        if enrich.stores.is_some() {
            enrich.run(["migrate"])?;
        }
        self.keys.main = enrich.create_workspace("bench", u32::MAX)?;
        self.keys.limited = enrich.create_workspace("limited", 1)?;
        enrich.import_people(PEOPLE)?;
        // Together, two nodes have as many workers as one node on a machine with two cores.
        let (nodes, variables): (_, &[_]) = if self.kind == ServerKind::PostgresTwoNodes {
            (2, &[("ENRICH_WORKERS", "1")])
        } else {
            (1, &[])
        };
        for _ in 0..nodes {
            self.nodes.push(enrich.serve(variables)?);
        }
        Ok(())
    }

    /// Uses up the rate limit of the workspace that is limited to one request.
    fn exhaust_rate_limit(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.nodes[0].address)?;
        stream.write_all(&dataset::request(self.keys.limited.reveal(), 0))?;
        let mut received = [0; 4_096];
        stream.read(&mut received).map(drop)
    }

    /// Returns the label in the table.
    pub fn label(&self) -> String {
        let log = if self.logs_lookups { ", log" } else { "" };
        self.kind.label().to_owned() + log
    }

    /// Returns the requests for `case`. For a refusal, bare hyper gets requests for a path that it does not
    /// serve.
    pub fn requests(&self, case: Case) -> Vec<Vec<u8>> {
        let mut requests = case.requests(&self.keys, PEOPLE);
        if self.kind.has_other_path(case) {
            requests.iter_mut().for_each(|request| dataset::change_path(request));
        }
        requests
    }

    /// Returns the expected status of its replies.
    pub fn status(&self, case: Case) -> u16 {
        if self.kind.has_other_path(case) { 404 } else { case.status() }
    }

    /// Returns the addresses of its nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Kills servers that run under a wrapper command, and waits until the wrapper has exited.
    pub fn kill_wrapped(mut self) -> io::Result<()> {
        self.nodes.iter_mut().try_for_each(Process::kill_wrapped)
    }

    /// Returns the CPU time of its nodes, without that of PostgreSQL and Redis.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.nodes.iter().map(|node| machine::cpu_time(node.pid())).sum()
    }
}

/// The key of the people in PostgreSQL.
const PEOPLE_KEY: &str = "07070707070707070707070707070707";

/// The program `enrich` with its data directory and settings.
#[derive(Debug)]
pub struct EnrichCommand<'a> {
    launcher: &'a Launcher,
    dir: PathBuf,
    /// The URLs of PostgreSQL and Redis.
    pub stores: Option<(String, String)>,
}

impl<'a> EnrichCommand<'a> {
    /// Uses a data directory in `dir`.
    pub fn new(launcher: &'a Launcher, dir: &Path) -> Self {
        Self { launcher, dir: dir.to_owned(), stores: None }
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn configure(&self, mut command: Command) -> Command {
        command.env("ENRICH_DATA", self.data_dir());
        if let Some((postgres, _)) = &self.stores {
            command.env("ENRICH_DATABASE", postgres).env("ENRICH_PEOPLE_KEY", PEOPLE_KEY);
        }
        command
    }

    /// Runs a command to completion and returns its output.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> io::Result<String> {
        let mut command = Command::new(self.launcher.enrich());
        command.env_clear();
        let out = self.configure(command).args(args).output()?;
        if !out.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Creates a workspace with practically unlimited credits, and returns a key for it.
    pub fn create_workspace(&self, workspace: &str, limit: u32) -> io::Result<ApiKey> {
        let (credits, limit) = (CREDITS.to_string(), limit.to_string());
        let limits = ["--credits", &credits, "--limit", &limit, "--window", "86400"];
        self.run(["workspace", "create", workspace].into_iter().chain(limits))?;
        let key = self.run(["key", "create", workspace, "rig"])?;
        ApiKey::parse(key.trim()).ok_or_else(|| io::Error::other("`enrich key create` printed no key"))
    }

    /// Imports `people` people into the directory.
    pub fn import_people(&self, people: usize) -> io::Result<()> {
        let file = self.dir.join("people.csv");
        let mut out = io::BufWriter::new(std::fs::File::create(&file)?);
        writeln!(out, "email,linkedin_url")?;
        for person in 0..people {
            writeln!(out, "{},linkedin.com/in/{}", dataset::email(person), dataset::profile(person))?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.run([OsStr::new("people"), "import".as_ref(), file.as_ref()])?;
        std::fs::remove_file(file)
    }

    /// Starts a server with these arguments.
    pub fn serve(&self, variables: &[(&str, &str)]) -> io::Result<Process> {
        let mut command = self.configure(self.launcher.command(&self.launcher.enrich()));
        command.args(["serve", "--listen", "127.0.0.1:0"]).envs(variables.iter().copied());
        if let Some((_, redis)) = &self.stores {
            command.env("ENRICH_WINDOWS", redis);
        }
        Process::start(command)
    }
}

/// A server process. It is killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The time between its start and its readiness.
    pub startup_time: Duration,
}

impl Process {
    /// Starts the process, and reads its address from its standard error.
    fn start(mut command: Command) -> io::Result<Self> {
        let started_at = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut stderr = BufReader::new(child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut output = String::new();
        let address = loop {
            let line_at = output.len();
            if stderr.read_line(&mut output)? == 0 {
                return Err(io::Error::other(format!("the server did not start: {output}")));
            }
            let address = output[line_at..]
                .split_once("http://")
                .map(|(_, rest)| rest.trim_end().trim_end_matches('"'));
            if let Some(address) = address.and_then(|address| address.parse().ok()) {
                break address;
            }
        };
        let startup_time = started_at.elapsed();
        // Keeps reading, as a server blocks when its log fills the pipe.
        thread::spawn(move || io::copy(&mut stderr.by_ref(), &mut io::sink()));
        Ok(Self { child, address, startup_time })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill_wrapped(&mut self) -> io::Result<()> {
        let pid = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            kill_process(child, Signal::KILL)?;
        }
        self.child.wait().map(drop)
    }

    /// Returns a load on this node only. All `requests` must be for people who are found.
    pub fn load<'a>(&'a self, connections: usize, requests: &'a [Vec<u8>]) -> Load<'a> {
        Load { addresses: std::slice::from_ref(&self.address), connections, requests, status: 200 }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl std::fmt::Debug for SharedStores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStores").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("kind", &self.kind)
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}
