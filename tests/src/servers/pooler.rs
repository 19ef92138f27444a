//! PgBouncer in transaction mode.

use std::net::TcpStream;

use tempfile::TempDir;

use super::Postgres;
use super::postgres::{new_directory, unprivileged};
use super::process::{Process, free_port};

const MISSING: &str = "install PgBouncer: apt-get install pgbouncer";

/// The settings. Two connections to the server are fewer than a node has to the pooler.
const SETTINGS: &str = "
    listen_addr = 127.0.0.1
    unix_socket_dir =
    auth_type = any
    pool_mode = transaction
    default_pool_size = 2
    max_client_conn = 100
";

/// A running PgBouncer.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    _process: Process,
    _files: TempDir,
}

impl Pooler {
    /// Starts a pooler for all databases of a server.
    pub fn start(postgres: &Postgres) -> Self {
        loop {
            let (files, port) = (new_directory(), free_port());
            let settings = files.path().join("pgbouncer.ini");
            let databases =
                format!("[databases]\n* = host=127.0.0.1 port={} user=postgres\n", postgres.port());
            let text = format!("{databases}[pgbouncer]\n{SETTINGS}\nlisten_port = {port}\n");
            std::fs::write(&settings, text).unwrap();
            let mut program = unprivileged("pgbouncer");
            program.arg(&settings);
            let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
            if let Some(process) = Process::start(program, &files.path().join("log"), MISSING, answers) {
                return Self { port, _process: process, _files: files };
            }
        }
    }

    /// Returns the URL of a database through the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
