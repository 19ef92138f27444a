//! PostgreSQL servers: a private one for a test that stops or kills it, or one shared by all tests of a run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use enrich_postgres::{Schema, Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::OnceCell;
pub use tokio_postgres::Client;
use tokio_postgres::NoTls;

use super::process::{children, free_port};

/// A PostgreSQL server. It stops when this value is dropped or the test process ends, unless another process
/// has started it.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    databases: AtomicU32,
    template: OnceCell<()>,
    process: Option<ServerProcess>,
    pub(super) dir: PathBuf,
}

#[derive(Debug)]
struct ServerProcess {
    settings: Vec<String>,
    server: Child,
    /// A shell that stops the server and deletes its files when its standard input closes, in case the test
    /// process is killed.
    watch: Child,
    _files: TempDir,
}

/// The template database of all test databases.
const TEMPLATE: &str = "enrich";

/// The environment variable with the directory and the port (`PORT:DIRECTORY`) of the server that the tests
/// of a run share. The setup script of nextest, which runs each test in its own process, sets it.
const SHARED: &str = "ENRICH_TEST_POSTGRES";

/// Settings of the shared server.
const SHARED_SETTINGS: [&str; 1] = ["max_connections=300"];

/// A library in the directory of a server, which the server loads if it exists.
pub(super) const PRELOADED: &str = "preloaded.so";

/// The timeout for starting the server.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Postgres {
    /// Starts a server with default settings.
    ///
    /// Commits survive a crash of the server but not of the machine, because `fsync` is off.
    pub fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// Starts a server with `settings` (`name=value`) and additional `files` (name, content) in its data
    /// directory.
    pub fn start_with(settings: &[&str], files: &[(&str, &str)]) -> Self {
        Self::serve_in(initialize(files), settings)
    }

    /// Starts a server on the data directory in `dir`.
    pub(super) fn serve_in(dir: TempDir, settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (port, server, watch) = serve_at_free_port(dir.path(), &settings, || Lifetime::Process);
        Self::new(dir.path().to_owned(), port, Some(ServerProcess { settings, server, watch, _files: dir }))
    }

    /// Returns the settings that it was started with.
    pub(super) fn settings(&self) -> Vec<&str> {
        self.process.iter().flat_map(|process| &process.settings).map(String::as_str).collect()
    }

    fn new(dir: PathBuf, port: u16, process: Option<ServerProcess>) -> Self {
        Self { port, databases: AtomicU32::new(0), template: OnceCell::new(), process, dir }
    }

    /// Returns the server that all tests share. Tests must not stop, kill or reconfigure it.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        SERVER.get_or_init(|| match env::var(SHARED) {
            Ok(address) => {
                let (port, dir) = address.split_once(':').unwrap();
                Self::new(dir.into(), port.parse().unwrap(), None)
            }
            Err(_) => Self::start_with(&SHARED_SETTINGS, &[]),
        })
    }

    /// Starts a server that runs until the process `of` ends, and returns its address for
    /// [`Postgres::shared`] as a variable.
    pub fn share(of: u32) -> String {
        let dir = initialize(&[]).keep();
        let (port, ..) = serve_at_free_port(&dir, &SHARED_SETTINGS.map(str::to_owned), || Lifetime::Of(of));
        format!("{SHARED}={port}:{}", dir.display())
    }

    /// Creates a database with the current schema and returns its name.
    pub async fn create_database(&self) -> String {
        self.template.get_or_init(|| self.make_template()).await;
        self.create_database_from(TEMPLATE).await
    }

    /// Creates a database without tables and returns its name.
    pub async fn create_empty_database(&self) -> String {
        self.create_database_from("template0").await
    }

    async fn create_database_from(&self, template: &str) -> String {
        let name = format!("test{}_{}", std::process::id(), self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        name
    }

    /// Creates the template, unless another process has.
    async fn make_template(&self) {
        let lock = self.client("postgres").await;
        lock.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
        let select = format!("SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'");
        if lock.query(&select, &[]).await.unwrap().is_empty() {
            lock.batch_execute(&format!("CREATE DATABASE {TEMPLATE}")).await.unwrap();
            Schema::new(self.server(TEMPLATE)).migrate().await.unwrap();
            // All changes must also be possible with logical replication.
            self.sql(TEMPLATE, "CREATE PUBLICATION everything FOR ALL TABLES").await;
        }
    }

    /// Returns the address of a database, over the Unix socket.
    pub fn server(&self, database: &str) -> Server {
        Server::from_str(&self.url(database)).unwrap()
    }

    /// Returns the URL of a database, over the Unix socket.
    pub fn url(&self, database: &str) -> String {
        let directory = self.dir.to_str().unwrap().replace('/', "%2F");
        format!("postgres://postgres@{directory}:{}/{database}", self.port)
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Returns the URL of a database, over TCP.
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost:{}/{database}", self.port)
    }

    /// Returns what the server has logged.
    pub fn log(&self) -> String {
        log(&self.dir)
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Executes SQL statements.
    pub async fn sql(&self, database: &str, statements: &str) {
        self.client(database).await.batch_execute(statements).await.unwrap();
    }

    /// Returns the columns of a query that yields one row of `bigint`s.
    pub async fn numbers(&self, database: &str, query: &str) -> Vec<i64> {
        let row = self.client(database).await.query_one(query, &[]).await.unwrap();
        (0..row.len()).map(|column| row.get(column)).collect()
    }

    /// Returns the number of statements in the database that wait for a lock. A hold tries again until it has one.
    pub async fn waiting_statements(&self, database: &str) -> i64 {
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')";
        self.numbers(database, waits).await[0]
    }

    /// Opens a new connection.
    pub async fn client(&self, database: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Returns whether the server runs.
    pub fn is_running(&mut self) -> bool {
        let process = self.process.as_mut().expect("the server is private");
        process.server.try_wait().is_ok_and(|end| end.is_none())
    }

    /// Stops the server immediately (`SIGQUIT`), as a crash would: without finishing transactions or a
    /// checkpoint.
    pub fn kill(&mut self) {
        self.signal(Signal::QUIT);
        self.signal(Signal::CONT); // if the server is paused, it handles the pending SIGQUIT first
        let ServerProcess { server, watch, .. } = self.process.as_mut().expect("the server is private");
        server.wait().unwrap();
        watch.kill().unwrap();
        watch.wait().unwrap();
    }

    /// Restarts the server after [`Postgres::kill`], at the same addresses.
    pub fn restart(&mut self) {
        let process = self.process.as_mut().expect("the server is private");
        let started = serve(&self.dir, self.port, &process.settings, Lifetime::Process);
        (process.server, process.watch) = started.expect("PostgreSQL does not start again");
    }

    /// Suspends the server (`SIGSTOP`). Connections stay open but get no replies.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the server. It processes the requests that arrived in the meantime.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server is private");
        let server = Pid::from_child(&process.server);
        let _ = kill_process(server, signal);
        // A stopped server forks no new children.
        for pid in children(server) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.is_some() && self.is_running() {
            self.kill();
        }
    }
}

/// Creates a directory for the files of a server.
pub(super) fn new_directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("enrich-pg").tempdir().unwrap();
    own(dir.path());
    dir
}

/// Creates a directory with an empty data directory and additional `files` (name, content) in it.
pub(super) fn initialize(files: &[(&str, &str)]) -> TempDir {
    let dir = new_directory();
    let data = dir.path().join("data");
    let made = program("initdb")
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (name, text) in files {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        own(&path);
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
    }
    dir
}

/// The event that ends a server.
enum Lifetime {
    /// The end of this process.
    Process,
    /// The end of another process.
    Of(u32),
}

/// Another process may take the free port before the server binds it.
fn serve_at_free_port(
    dir: &Path,
    settings: &[String],
    lifetime: impl Fn() -> Lifetime,
) -> (u16, Child, Child) {
    let started = (0..5).find_map(|_| {
        let port = free_port();
        serve(dir, port, settings, lifetime()).map(|(server, watch)| (port, server, watch))
    });
    started.unwrap_or_else(|| panic!("PostgreSQL does not start: {}", log(dir)))
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Starts a server and waits until it responds. Returns `None` if it exits first.
fn serve(dir: &Path, port: u16, settings: &[String], lifetime: Lifetime) -> Option<(Child, Child)> {
    let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut server = program("postgres");
    server.arg("-D").arg(dir.join("data")).arg("-k").arg(dir);
    server.args(["-p", &port.to_string(), "-c", "listen_addresses=localhost", "-c", "fsync=off"]);
    settings.iter().for_each(|setting| {
        server.args(["-c", setting]);
    });
    if dir.join(PRELOADED).exists() {
        server.env("LD_PRELOAD", dir.join(PRELOADED));
    }
    let mut server =
        server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    // Waits for the server to exit before `rm`, because a running server would create new files.
    let wait = match lifetime {
        Lifetime::Process => "read -r _".to_owned(),
        Lifetime::Of(pid) => format!("while kill -0 {pid}; do sleep 1; done"),
    };
    let clean_up = "kill -QUIT $0; kill -CONT $0
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $0 || break; sleep 0.5; done; rm -rf \"$1\"";
    let mut watch = Command::new("sh");
    watch.args(["-c", &format!("{wait}; {clean_up}"), &server.id().to_string()]).arg(dir);
    watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watch = watch.spawn().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let is_ready = || {
        let mut ask = program("pg_isready");
        ask.arg("-q").arg("-h").arg(dir).args(["-p", &port.to_string()]);
        ask.status().unwrap().success()
    };
    while !is_ready() {
        if server.try_wait().unwrap().is_some() {
            watch.kill().unwrap();
            watch.wait().unwrap();
            return None;
        }
        assert!(Instant::now() < deadline, "PostgreSQL does not respond: {}", self::log(dir));
        thread::sleep(Duration::from_millis(20));
    }
    Some((server, watch))
}

/// Creates a command for one of PostgreSQL's programs.
pub(super) fn program(name: &str) -> Command {
    unprivileged(bin().join(name))
}

/// Creates a command that runs as another user than root, which PostgreSQL and PgBouncer refuse.
pub(super) fn unprivileged(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/");
    command
}

/// Changes the owner of a file to the user that runs the server.
fn own(path: &Path) {
    if let Some((uid, gid)) = user() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// Returns the uid and gid of the user `postgres` if this process runs as root, and `None` otherwise.
fn user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        rustix::process::getuid().is_root().then(|| {
            let users = fs::read_to_string("/etc/passwd").unwrap();
            let ids = users.lines().find_map(|line| {
                let mut ids = line.strip_prefix("postgres:")?.split(':').skip(1).map(|id| id.parse().ok());
                Some((ids.next()??, ids.next()??))
            });
            ids.expect("the user postgres exists; tests that run as root start PostgreSQL as this user")
        })
    })
}

/// Finds the directory of PostgreSQL's programs with `pg_config`, in `PATH`, or where Debian installs them.
fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let path = env::var_os("PATH").unwrap_or_default();
        let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut places: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
        places.sort();
        places.extend(env::split_paths(&path));
        let config = Command::new("pg_config").arg("--bindir").output().ok();
        places.extend(config.and_then(|out| Some(PathBuf::from(String::from_utf8(out.stdout).ok()?.trim()))));
        let found = places.into_iter().rev().find(|dir| dir.join("initdb").exists() && dir.join("postgres").exists());
        found.expect(
            "PostgreSQL is not installed: on Debian and Ubuntu, apt-get install postgresql; on macOS, brew install \
             postgresql",
        )
    })
}
