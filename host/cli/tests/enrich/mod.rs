//! Runs the binary. Each test has its own data directory.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each suite uses its part")]

pub mod admin;
mod client;
pub mod disk;
pub mod http;
pub mod preload;
mod process;
mod server;
pub mod vendor;

use std::env;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rcgen::date_time_ymd;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tempfile::TempDir;

use self::client::listening_address;
pub use self::client::{Client, Reply, Stream, dial, exchange, header};
pub use self::disk::bytes_under;
use self::process::Deadline;
pub use self::process::{Signal, beside, make_fifo, send, wait_until_interrupted};
pub use self::server::Server;

/// Long enough for the slowest machine. Only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A person in the tests.
pub const EMAIL: &str = "ada.marlowe@gmail.com";
pub const URL: &str = "https://www.linkedin.com/in/ada";

/// The variable with the key of the people in a database.
pub const PEOPLE_KEY: (&str, &str) = ("ENRICH_PEOPLE_KEY", "07070707070707070707070707070707");

pub struct Enrich {
    dir: TempDir,
    /// URL of the database; `None` if everything is in the data directory.
    database: Option<String>,
    deadline: Option<Deadline>,
}

pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub success: bool,
    /// `None` if a signal ended the process.
    pub code: Option<i32>,
}

impl Ran {
    pub fn of(Output { status, stdout, stderr }: Output) -> Self {
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        Self { stdout, stderr, success: status.success(), code: status.code() }
    }
}

impl Enrich {
    /// Creates an empty data directory.
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), database: None, deadline: Some(Deadline::start()) }
    }

    /// Lets the test run for longer than others.
    pub fn without_deadline(self) -> Self {
        Self { deadline: None, ..self }
    }

    /// Uses this database instead of a data directory. Each node counts requests alone.
    pub fn with_database(url: String) -> Self {
        Self { database: Some(url), ..Self::new() }
    }

    /// Uses a new database of the shared server.
    pub fn on_postgresql() -> Self {
        let server = enrich_tests::servers::Postgres::shared();
        Self::with_database(server.url(&block_on(server.create_database())))
    }

    /// Creates a workspace `demo` with these credits and this number of requests a minute, and one key.
    pub fn with_key(credits: u64, limit: u64) -> (Self, String) {
        let enrich = Self::new();
        let key = enrich.make_key(credits, limit);
        (enrich, key)
    }

    /// Like [`with_key`](Self::with_key), with the person of [`EMAIL`].
    pub fn with_ada(credits: u64, limit: u64) -> (Self, String) {
        let (enrich, key) = Self::with_key(credits, limit);
        enrich.import_ada();
        (enrich, key)
    }

    /// Creates a workspace `demo` and one key.
    pub fn make_key(&self, credits: u64, limit: u64) -> String {
        let (credits, limit) = (credits.to_string(), limit.to_string());
        self.ok(&["workspace", "create", "demo", "--credits", &credits, "--limit", &limit]);
        self.ok(&["key", "create", "demo", "test"])
    }

    /// Imports rows of CSV with the email and the URL of a person.
    pub fn import(&self, rows: &str) -> String {
        self.file("people.csv", format!("email,linkedin_url\n{rows}"));
        self.ok(&["people", "import", "people.csv"])
    }

    /// Imports the person with [`EMAIL`].
    pub fn import_ada(&self) {
        self.import(&format!("{EMAIL},{URL}\n"));
    }

    /// Writes the certificate `cert.pem` of a host and its key `key.pem`, and returns it.
    pub fn certificate(&self, host: &str) -> CertificateDer<'static> {
        self.certificate_of_years(host, 2000, 3000)
    }

    /// Like [`certificate`](Self::certificate), valid from one New Year to another one.
    pub fn certificate_of_years(&self, host: &str, first: i32, end: i32) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new([host.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(end, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        self.file("cert.pem", made.pem());
        let key = self.file("key.pem", key.serialize_pem());
        std::fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
        made.der().clone()
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
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs a command line whose arguments have no spaces.
    pub fn run_line(&self, line: &str) -> Ran {
        self.run(&line.split(' ').collect::<Vec<_>>())
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

    /// Returns the id of a key of a workspace, by its place in the list.
    pub fn key_id(&self, workspace: &str, n: usize) -> String {
        self.json(&["key", "list", workspace, "--json"])[n]["id"].as_str().unwrap().to_owned()
    }

    /// Returns the balance of a workspace.
    pub fn credits(&self, workspace: &str) -> Value {
        let list = self.json(&["workspace", "list", "--json"]);
        list.as_array().unwrap().iter().find(|row| row["name"] == workspace).unwrap()["credits"].clone()
    }

    /// Returns the credits that `demo` has spent.
    pub fn spent(&self) -> u64 {
        self.credits("demo")["spent"].as_u64().unwrap()
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
        self.try_serve(args).unwrap_or_else(|log| panic!("it did not start: {log}"))
    }

    /// Like [`serve`](Self::serve). Returns the log if the server does not start.
    pub fn try_serve(&self, args: &[&str]) -> Result<Server, String> {
        let serve = ["ENRICH_LOG=info", "serve", "--listen", "127.0.0.1:0"];
        Server::start(self.command(&[&serve, args].concat()).stdin(Stdio::null()))
    }

    /// Like [`serve`](Self::serve), with a configuration file.
    pub fn serve_with(&self, config: &Path) -> Server {
        self.serve(&["--config", config.to_str().unwrap()])
    }

    /// Starts a server that logs to `stderr` and waits until it listens. The test does not read the log.
    pub fn serve_logging_to(&self, stderr: impl Into<Stdio>, args: &[&str]) -> Server {
        let mut command = self.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let address = eventually("it listens", || {
            assert_eq!(child.try_wait().unwrap(), None, "it did not start");
            listening_address(child.id())
        });
        Server::of(child, format!("http://{address}"))
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
        clear_environment(&mut command);
        command.env("ENRICH_DATA", self.data()).current_dir(self.dir.path()).args(args);
        if let Some(url) = &self.database {
            let stores = [("ENRICH_DATABASE", url.as_str()), ("ENRICH_WINDOWS", "memory"), PEOPLE_KEY];
            command.envs(stores);
        }
        command.envs(variables.into_iter().filter_map(|arg| variable(arg)));
        command
    }
}

/// The environment of the test run must not affect the binary, except for a planted bug.
pub fn clear_environment(command: &mut Command) {
    let planted = ["PLANTED", "NEXTEST_TEST_NAME"];
    command.env_clear().envs(planted.iter().filter_map(|name| Some((name, env::var_os(name)?))));
}

/// Returns the name and the value of an argument that sets a variable.
fn variable(arg: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    arg.split_once('=').filter(|(name, _)| is_name(name))
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
