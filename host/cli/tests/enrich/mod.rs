//! Runs the binary. Each test has its own data directory.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each suite uses its part")]

pub mod admin;
mod client;
pub mod disk;
pub mod preload;
mod process;
pub mod vendor;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use self::client::listening_address;
pub use self::client::{Client, Reply, Stream, dial};
pub use self::disk::bytes_under;
use self::process::Deadline;
pub use self::process::{Signal, beside, make_fifo, send};

/// Long enough for the slowest machine. Only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The variable with the key of the people in a database.
pub const PEOPLE_KEY: (&str, &str) = ("ENRICH_PEOPLE_KEY", "07070707070707070707070707070707");

pub struct Enrich {
    dir: TempDir,
    /// URL of the database; `None` if everything is in the data directory.
    database: Option<String>,
    /// A cluster may run for longer.
    deadline: Option<Deadline>,
}

pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub success: bool,
    /// `None` if a signal ended the process.
    pub code: Option<i32>,
}

impl Enrich {
    /// Creates an empty data directory.
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), database: None, deadline: Some(Deadline::start()) }
    }

    /// Uses this database instead of a data directory. Each node counts requests alone.
    pub fn with_database(url: String) -> Self {
        Self { dir: TempDir::new().unwrap(), database: Some(url), deadline: None }
    }

    /// Creates a workspace `demo` with these credits and this number of requests a minute, and one key.
    pub fn with_key(credits: u64, limit: u64) -> (Self, String) {
        let enrich = Self::new();
        let key = enrich.make_key(credits, limit);
        (enrich, key)
    }

    /// Creates a workspace `demo` and one key.
    pub fn make_key(&self, credits: u64, limit: u64) -> String {
        let (credits, limit) = (credits.to_string(), limit.to_string());
        self.ok(&["workspace", "create", "demo", "--credits", &credits, "--limit", &limit]);
        self.ok(&["key", "create", "demo", "test"])
    }

    /// Makes the window of `demo` so long that it does not end during a test which counts requests.
    pub fn count_for_a_day(&self) {
        self.ok(&["workspace", "set", "demo", "--window", "86400"]);
    }

    /// Returns the URL of the accounts database.
    pub fn database(&self) -> &str {
        self.database.as_deref().unwrap()
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes a file outside of the data directory.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let out = self.command(args).output().unwrap();
        let [stdout, stderr] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
        Ran { stdout, stderr, success: out.status.success(), code: out.status.code() }
    }

    /// Returns the output of a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert!(ran.success, "{args:?}: {}", ran.stderr);
        ran.stdout.trim_end().to_owned()
    }

    /// Returns the JSON output of a command.
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Returns the balance of a workspace.
    pub fn credits(&self, workspace: &str) -> Value {
        let list = self.json(&["workspace", "list", "--json"]);
        list.as_array().unwrap().iter().find(|row| row["name"] == workspace).unwrap()["credits"].clone()
    }

    /// Returns the error output of a command that must fail.
    pub fn err(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert!(!ran.success, "{args:?} succeeded: {}", ran.stdout);
        assert_eq!(ran.stdout, "", "errors go to stderr");
        ran.stderr
    }

    /// Starts a server on a free port and waits until it listens.
    pub fn serve(&self, args: &[&str]) -> Server {
        self.serve_where(&[], args)
    }

    /// Like [`serve`](Self::serve), with additional environment variables.
    pub fn serve_where(&self, variables: &[(&str, &str)], args: &[&str]) -> Server {
        self.try_serve(variables, args).unwrap_or_else(|log| panic!("it did not start: {log}"))
    }

    /// Like [`serve_where`](Self::serve_where). Returns the log if the server does not start.
    pub fn try_serve(&self, variables: &[(&str, &str)], args: &[&str]) -> Result<Server, String> {
        let mut command = self.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        Server::start(command.env("ENRICH_LOG", "info").envs(variables.iter().copied()).stdin(Stdio::null()))
    }

    /// Like [`serve`](Self::serve), with a configuration file.
    pub fn serve_with(&self, config: &Path) -> Server {
        self.serve(&["--config", config.to_str().unwrap()])
    }

    /// Starts a server that logs to `stderr` and waits until it listens. The test does not read the log.
    pub fn serve_logging_to(
        &self,
        stderr: impl Into<Stdio>,
        variables: &[(&str, &str)],
        args: &[&str],
    ) -> Server {
        let mut command = self.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let address = eventually("it listens", || {
            assert_eq!(child.try_wait().unwrap(), None, "it did not start");
            listening_address(child.id())
        });
        Server { child, url: format!("http://{address}"), log: Arc::default(), reading: None }
    }

    /// Starts a server with a limit on open files that it cannot raise.
    pub fn try_serve_with_open_files(&self, limit: u32, args: &[&str]) -> Result<Server, String> {
        let script = format!("ulimit -n {limit} && exec \"$0\" serve --listen 127.0.0.1:0 \"$@\"");
        Server::start(self.shell(&script, args).env("ENRICH_LOG", "info").stdin(Stdio::null()))
    }

    /// Returns a shell that runs a script, in which `$0` is the program and `$@` are the arguments.
    pub fn shell(&self, script: &str, args: &[&str]) -> Command {
        self.command_of("sh", &[&["-c", script, env!("CARGO_BIN_EXE_enrich")], args].concat())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_enrich"), args)
    }

    /// Arguments such as `ENRICH_WORKERS=1` set variables, as in a shell.
    pub fn command_of(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        let (variables, args): (Vec<_>, Vec<_>) = args.iter().partition(|arg| variable(arg).is_some());
        // The environment of the test run must not affect the binary.
        command.env_clear().env("ENRICH_DATA", self.data()).current_dir(self.dir.path()).args(args);
        if let Some(url) = &self.database {
            let stores = [("ENRICH_DATABASE", url.as_str()), ("ENRICH_WINDOWS", "memory"), PEOPLE_KEY];
            command.envs(stores);
        }
        command.envs(variables.into_iter().filter_map(|arg| variable(arg)));
        command
    }
}

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    pub url: String,
    log: Arc<Mutex<String>>,
    reading: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut log = String::new();
        let url = loop {
            let start = log.len();
            if stderr.read_line(&mut log).unwrap() == 0 {
                child.wait().unwrap();
                return Err(log);
            }
            if log[start..].contains("serving")
                && let Some(url) = url_in(&log[start..])
            {
                break url;
            }
        };
        // Keeps reading, because a full pipe would block the server.
        let log = Arc::new(Mutex::new(log));
        let reading = std::thread::spawn({
            let log = log.clone();
            move || {
                stderr.lines().map_while(Result::ok).for_each(|line| *log.lock().unwrap() += &(line + "\n"))
            }
        });
        Ok(Self { child, url, log, reading: Some(reading) })
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Returns the URL of the web application.
    pub fn console_url(&self) -> String {
        let log = self.log.lock().unwrap();
        log.lines().filter(|line| line.contains("web application")).find_map(url_in).unwrap()
    }

    /// Returns the address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        let url = self.log().lines().filter(|line| line.contains("admin listener")).find_map(url_in).unwrap();
        url.split("://").nth(1).unwrap().parse().unwrap()
    }

    pub fn address(&self) -> SocketAddr {
        self.url.split("://").nth(1).unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address()).unwrap()
    }

    /// Reads stdout up to the first line that contains `marker`.
    pub fn stdout_line_with(&mut self, marker: &str) -> String {
        let stdout = BufReader::new(self.child.stdout.as_mut().unwrap());
        stdout.lines().map(|line| line.unwrap()).find(|line| line.contains(marker)).unwrap()
    }

    /// Waits until the log contains `part` at least `count` times.
    pub fn wait_for_log(&self, part: &str, count: usize) {
        eventually(part, || (self.log.lock().unwrap().matches(part).count() >= count).then_some(()));
    }

    /// Sends SIGHUP, which reloads the configuration.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Suspends the process. It then neither replies nor closes connections.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended process, which then handles the input received meanwhile.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        send(signal, &self.child);
    }

    /// Requests a graceful shutdown.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Requests a graceful shutdown, waits for its end and returns the log.
    pub fn stop(self) -> String {
        self.terminate();
        self.wait()
    }

    /// Like [`stop`](Self::stop), and returns the unread part of stdout too.
    pub fn stop_with_stdout(mut self) -> (String, String) {
        let mut stdout = self.child.stdout.take().unwrap();
        let (log, mut text) = (self.stop(), String::new());
        stdout.read_to_string(&mut text).unwrap();
        (log, text)
    }

    /// Waits for the end of a graceful shutdown and returns the log.
    pub fn wait(mut self) -> String {
        let status = eventually("it stops", || self.child.try_wait().unwrap());
        assert!(status.success(), "the server failed to stop gracefully: {status}");
        self.take_log()
    }

    /// Waits until the server ends by itself, and returns its exit code and the log.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = eventually("it ends", || self.child.try_wait().unwrap());
        (status.code(), self.take_log())
    }

    /// Sends SIGKILL, so that the server neither flushes nor logs anything.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.take_log()
    }

    fn take_log(&mut self) -> String {
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the name and the value of an argument that sets a variable.
fn variable(arg: &str) -> Option<(&str, &str)> {
    arg.split_once('=').filter(|(name, _)| name.starts_with("ENRICH_"))
}

/// Returns the first URL in a log line.
fn url_in(line: &str) -> Option<String> {
    let url = &line[line.find("http")?..];
    Some(url[..url.find(['"', '\n']).unwrap_or(url.len())].to_owned())
}

/// Polls `probe` until it returns `Some`. Panics after [`TIMEOUT`].
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, probe).unwrap_or_else(|| panic!("{what}: not within {TIMEOUT:?}"))
}

/// Polls `probe` until it returns `Some` or the time is over.
pub fn within<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = std::time::Instant::now() + timeout;
    loop {
        match probe() {
            None if std::time::Instant::now() < give_up => std::thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
}

/// Checks that a change that was just made applies within the second that the manual promises: a request that
/// begins later is not answered as before the change. The duration of a request is not part of the promise.
pub fn within_a_second(what: &str, applies: impl Fn() -> bool) {
    let changed_at = std::time::Instant::now();
    eventually(what, || {
        let is_late = changed_at.elapsed() > Duration::from_secs(1);
        let applies = applies();
        assert!(applies || !is_late, "{what}: not within a second");
        applies.then_some(())
    });
}

/// Returns the root directory of the repository.
pub fn repository() -> PathBuf {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    ancestors.map(Path::to_owned).find(|dir| dir.join("Cargo.lock").is_file()).unwrap()
}

/// Runs asynchronous work of a test.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
