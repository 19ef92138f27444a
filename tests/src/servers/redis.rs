//! One `redis-server` in a directory of its own, in memory alone.

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

/// A server that is there as long as this value.
pub struct Redis {
    port: u16,
    tls_port: u16,
    args: Vec<String>,
    authority: String,
    process: Mutex<Option<Process>>,
    files: TempDir,
}

/// What a test may want otherwise.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Settings, as in `redis.conf`: name and value.
    pub settings: Vec<(&'static str, String)>,
    /// Whether it speaks TLS too.
    pub tls: bool,
}

impl Redis {
    /// A server without a password, which forgets everything with its process.
    pub fn start() -> Self {
        Self::with(&RedisOptions::default())
    }

    pub fn with(options: &RedisOptions) -> Self {
        // Another process may take a free port first.
        let started = (0..5).find_map(|_| {
            let redis = Self::new(options);
            redis.run().then_some(redis)
        });
        started.expect("redis-server ends as soon as it is started")
    }

    fn new(options: &RedisOptions) -> Self {
        let files = TempDir::new().unwrap();
        let (port, tls_port) = (free_port(), if options.tls { free_port() } else { 0 });
        let mut args = Vec::new();
        let mut set = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        set("port", port.to_string());
        set("bind", "127.0.0.1".to_owned());
        set("unixsocket", files.path().join("socket").display().to_string());
        set("dir", files.path().display().to_string());
        set("save", String::new());
        set("appendonly", "no".to_owned());
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
        Self { port, tls_port, args, authority, process: Mutex::default(), files }
    }

    /// Whether it runs now.
    fn run(&self) -> bool {
        let mut program = Command::new("redis-server");
        program.args(&self.args);
        let answers = || self.connect().is_ok_and(|mut redis| redis::cmd("PING").exec(&mut redis).is_ok());
        let started = Process::start(program, &self.files.path().join("log"), MISSING, answers);
        *self.process() = started;
        self.process().is_some()
    }

    /// Where it answers in plain.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The same for a user.
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Where it answers over TLS, with a certificate for `localhost` and 127.0.0.1.
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port)
    }

    /// Who its certificate is of, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Where it answers on this machine.
    pub fn socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the operator asks, in plain and as the default user: `redis.ask::<i64>("TTL key")`.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn try_ask<T: FromRedisValue>(&self, command: &str) -> RedisResult<T> {
        let mut words = command.split(' ');
        let mut asked = redis::cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            asked.arg(word);
        });
        asked.query(&mut self.connect()?)
    }

    fn connect(&self) -> RedisResult<Connection> {
        let redis = Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))?;
        redis.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(redis)
    }

    /// Ends at once, and with it all that it knew.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Starts anew at the same place, after a kill.
    pub fn restart(&self) {
        self.kill();
        assert!(self.run(), "redis-server does not come back");
    }

    /// Answers nobody until [`Redis::resume`]; its connections stay.
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

/// An authority of its own, and its certificate for `localhost` and 127.0.0.1. Gives the authority's certificate.
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
