//! A `redis-server` process with its own directory and without persistence.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redis::{Client, Connection, FromRedisValue, RedisResult};
use tempfile::TempDir;

use super::process::{Process, free_port};

const MISSING: &str =
    "missing: redis-server; on Debian and Ubuntu: apt-get install redis-server; on macOS: brew install redis";

/// A Redis server. It stops when this value is dropped.
pub struct Redis {
    port: u16,
    tls_port: u16,
    bus_port: u16,
    args: Vec<String>,
    authority: String,
    process: Mutex<Option<Process>>,
    files: TempDir,
}

/// Overrides for tests.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Names and values of settings, as in `redis.conf`.
    pub settings: Vec<(&'static str, String)>,
    /// Whether the server accepts TLS as well.
    pub tls: bool,
}

impl Redis {
    /// Starts a server without a password.
    pub fn start() -> Self {
        Self::with(&RedisOptions::default())
    }

    pub fn with(options: &RedisOptions) -> Self {
        // Another process may take the free port before the server binds it.
        let started = (0..5).find_map(|_| {
            let redis = Self::new(options);
            redis.run().then_some(redis)
        });
        started.expect("redis-server ends as soon as it is started")
    }

    fn new(options: &RedisOptions) -> Self {
        let files = TempDir::new().unwrap();
        let (port, bus_port, tls_port) =
            (free_port(), free_port(), if options.tls { free_port() } else { 0 });
        let mut args = Vec::new();
        let mut set = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        set("port", port.to_string());
        set("bind", "127.0.0.1".to_owned());
        set("unixsocket", files.path().join("socket").display().to_string());
        set("dir", files.path().display().to_string());
        set("save", String::new());
        set("appendonly", "no".to_owned());
        if options.settings.iter().any(|(name, _)| *name == "cluster-enabled") {
            set("cluster-port", bus_port.to_string());
        }
        let mut authority = String::new();
        if options.tls {
            authority = certify(&files);
            set("tls-port", tls_port.to_string());
            set("tls-auth-clients", "no".to_owned());
            for (name, file) in
                [("tls-cert-file", "cert.pem"), ("tls-key-file", "key.pem"), ("tls-ca-cert-file", "ca.pem")]
            {
                set(name, files.path().join(file).display().to_string());
            }
        }
        for (name, value) in &options.settings {
            set(name, value.clone());
        }
        Self { port, tls_port, bus_port, args, authority, process: Mutex::default(), files }
    }

    /// Starts the process. Returns `false` if it exited at once.
    fn run(&self) -> bool {
        let mut program = Command::new("redis-server");
        program.args(&self.args);
        let answers = || self.connect().is_ok_and(|mut redis| redis::cmd("PING").exec(&mut redis).is_ok());
        let started = Process::start(program, &self.files.path().join("log"), MISSING, answers);
        *self.process() = started;
        self.process().is_some()
    }

    /// Returns the URL without TLS.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the URL with credentials, without TLS.
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Returns the TLS URL. The certificate is valid for `localhost` and 127.0.0.1.
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port)
    }

    /// Returns the certificate of the server's CA in PEM. Empty without TLS.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port of the Cluster's bus.
    pub(super) fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// Executes a command as the default user and returns its result: `redis.ask::<i64>("TTL key")`.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        let words: Vec<_> = command.split(' ').collect();
        let result =
            self.connect().and_then(|mut redis| redis::cmd(words[0]).arg(&words[1..]).query(&mut redis));
        result.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    fn connect(&self) -> RedisResult<Connection> {
        let redis = Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))?;
        redis.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(redis)
    }

    /// Kills the server. Its data is lost.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Restarts the server, without its data, at the same addresses.
    pub fn restart(&self) {
        self.kill();
        assert!(self.run(), "redis-server does not come back");
    }

    /// Suspends the server until [`Redis::resume`]. Its connections stay open but get no replies.
    pub fn pause(&self) {
        self.process().as_ref().expect("it runs").pause();
    }

    pub fn resume(&self) {
        self.process().as_ref().expect("it runs").resume();
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a CA and a server certificate for `localhost` and 127.0.0.1. Returns the CA's certificate in PEM.
fn certify(files: &TempDir) -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned)).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    for (name, pem) in
        [("ca.pem", authority.pem()), ("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())]
    {
        std::fs::write(files.path().join(name), pem).unwrap();
    }
    authority.pem()
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("port", &self.port).field("files", &self.files).finish_non_exhaustive()
    }
}
