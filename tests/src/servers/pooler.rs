//! PgBouncer in transaction mode.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Postgres;
use super::postgres::{new_directory, unprivileged};
use super::process::{Process, free_port};

const MISSING: &str = "install PgBouncer: apt-get install pgbouncer";

/// If this environment variable is set, the nodes of tests connect through a pooler.
const POOLED: &str = "ENRICH_TEST_POOLER";

/// The settings. Three connections to the server are fewer than a node has to the pooler.
const SETTINGS: &str = "
    listen_addr = 127.0.0.1
    auth_type = any
    pool_mode = transaction
    default_pool_size = 3
    max_client_conn = 100
    server_login_retry = 1
";

/// A running PgBouncer.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    process: Process,
    files: TempDir,
}

impl Pooler {
    /// Starts a pooler for all databases of the server on a port of this machine.
    pub fn start(server: u16) -> Self {
        let mut log = String::new();
        for _ in 0..5 {
            let (files, port) = (new_directory(), free_port());
            let settings = files.path().join("pgbouncer.ini");
            let databases = format!("[databases]\n* = host=127.0.0.1 port={server} user=postgres\n");
            let directory = files.path().display();
            let text = format!(
                "{databases}[pgbouncer]\n{SETTINGS}\nlisten_port = {port}\nunix_socket_dir = {directory}\n"
            );
            std::fs::write(&settings, text).unwrap();
            if let Some(process) = run(files.path(), port) {
                return Self { port, process, files };
            }
            log = std::fs::read_to_string(files.path().join("log")).unwrap_or_default();
        }
        panic!("PgBouncer does not start: {log}")
    }

    /// Starts the pooler again if it has exited. Before 1.21, it can if a client ends while it cancels a
    /// statement.
    pub fn restart_if_exited(&mut self) {
        if self.process.has_exited() {
            self.process = run(self.files.path(), self.port).expect("the pooler does not start again");
        }
    }

    /// Starts a pooler if the environment variable `ENRICH_TEST_POOLER` is set.
    pub fn if_requested(postgres: &Postgres) -> Option<Self> {
        std::env::var_os(POOLED).map(|_| Self::start(postgres.port()))
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.files.path(), self.port)
    }

    /// Returns the URL of a database through the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// Starts a pooler with the settings in `directory`. Returns `None` if the port is in use: then it listens on its
/// Unix socket alone.
fn run(directory: &Path, port: u16) -> Option<Process> {
    let (mut program, log) = (unprivileged("pgbouncer"), directory.join("log"));
    program.arg(directory.join("pgbouncer.ini"));
    let answers = || UnixStream::connect(socket(directory, port)).is_ok();
    let process = Process::start(program, &log, MISSING, answers)?;
    let has_port = !std::fs::read_to_string(&log).unwrap().contains("cannot listen");
    has_port.then_some(process)
}

fn socket(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}
