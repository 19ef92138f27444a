//! Servers, TLS and the underlying streams.
//!
//! `sslmode` in the URL selects when TLS is used. It does not affect verification: the certificate and its
//! host name are always verified, against the system's root certificates or those in `sslrootcert=FILE`.
//! `sslcert=FILE` and `sslkey=FILE` name the certificate and the key that the client presents.
//!
//! | `sslmode` | |
//! |---|---|
//! | `disable` | never uses TLS |
//! | `prefer`, the default | uses TLS if the server offers it; a certificate that cannot be verified is an error |
//! | `require`, `verify-ca`, `verify-full` | always uses TLS |
//!
//! Connections over a Unix socket never use TLS.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

#[cfg(unix)]
use enrich_net::Unix;
use enrich_net::{
    ADDRESS_HEAD_START, Connect, Identity, Liveness, RootCertStore, Stream, Tcp, TcpAddress, client_config,
    first, pem_roots, system_roots,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{DatabaseUrl, TlsFiles};
use crate::error::PostgresError;

/// The time after which the next host is tried as well. A host that does not respond delays a connection by no more,
/// and one that is only busy keeps its node.
const HOST_HEAD_START: Duration = Duration::from_secs(1);

/// A boxed stream as a concrete type. The compiler cannot prove that a future with a `Box<dyn Stream>` is
/// `Send`.
pub(crate) struct AnyStream(pub(crate) Box<dyn Stream>);

impl AsyncRead for AnyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AnyStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    /// Waits until the server has closed the stream, which it does after a message that ends it. PgBouncer 1.18
    /// exits if the client of a cancel request closes it first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        while ready!(Pin::new(&mut *self.0).poll_read(cx, &mut buffer)).is_ok() && !buffer.filled().is_empty()
        {
            buffer.clear();
        }
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// The servers of one database and the means of connecting to them. `Debug` hides the password. `Display` shows what
/// identifies the tables: the user, hosts with ports, the database and the options of its sessions.
///
/// Connections are made to the first server that is reachable and accepts writes. A standby is never used.
#[derive(Clone, derive_more::Debug)]
// `tokio_postgres` prints the password as `_`.
#[debug("Server {{ hosts: {:?}, .. }}", hosts.iter().map(|host| &host.config).collect::<Vec<_>>())]
pub struct Server {
    name: Arc<str>,
    /// At least one.
    hosts: Vec<Arc<Host>>,
    connect_timeout: Duration,
    state: Arc<State>,
}

/// The state that all clones of a server share, and thus all pools of a node.
#[derive(Default)]
struct State {
    /// The generation of new connections.
    generation: AtomicU64,
    /// The host of the last connection. Connections to other hosts are not used again: of two servers that accept
    /// writes, one may lack transactions that were acknowledged.
    last: AtomicUsize,
    /// Whether the last attempt to connect has failed.
    is_failing: AtomicBool,
    turn: Mutex<()>,
}

/// One server.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) config: tokio_postgres::Config,
    /// `None` disables TLS even if the server offers it.
    pub(crate) tls: Option<Tls>,
    network: Network,
}

/// The TLS configuration and the host name that the certificate must match.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) maker: MakeRustlsConnect,
    pub(crate) name: String,
}

#[derive(Clone)]
enum Network {
    /// A host name, resolved for each connection.
    Tcp(Tcp, Liveness),
    Other(Arc<dyn Connect>),
}

impl Server {
    /// Replaces the system's network with `network`, which leads to one server. The URL still supplies the
    /// user, the database and the name for TLS, which is that of its first host.
    #[must_use]
    pub fn through(mut self, network: impl Connect) -> Self {
        let host = Host::clone(&self.hosts[0]);
        self.hosts = vec![Arc::new(Host { network: Network::Other(Arc::new(network)), ..host })];
        self.state = Arc::default();
        self
    }

    /// Returns the first session that `open` establishes with one of the hosts, or an error after the connection
    /// timeout. The host of the last session is tried first, then the others in their order, and for each host
    /// all its addresses. Later ones are tried when the earlier ones fail or have not finished within
    /// [`HOST_HEAD_START`] or [`ADDRESS_HEAD_START`].
    pub(crate) async fn connect<T, F>(
        &self,
        open: impl Fn(Arc<Host>, Arc<dyn Connect>) -> F,
    ) -> Result<T, PostgresError>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        let (open, last) = (&open, self.state.last.load(Ordering::Relaxed));
        let others = (0..self.hosts.len()).filter(|n| *n != last);
        let no_address = || PostgresError::Unreachable(io::Error::other("the host name has no address"));
        let shows_response = |error: &PostgresError| !matches!(error, PostgresError::Unreachable(_));
        let of_host = |n: usize| async move {
            let host = &self.hosts[n];
            let addresses = async { Ok(host.network.addresses().await?) };
            let open = |address| self.within_timeout(open(host.clone(), address));
            let addresses = self.within_timeout(addresses).await?;
            let session = first(ADDRESS_HEAD_START, addresses, open, shows_response).await;
            Ok((session.unwrap_or_else(|| Err(no_address()))?, n))
        };
        let hosts = std::iter::once(last).chain(others);
        let session = first(HOST_HEAD_START, hosts, of_host, shows_response).await;
        let (session, n) = session.unwrap_or_else(|| Err(no_address()))?;
        self.state.last.store(n, Ordering::Relaxed);
        Ok(session)
    }

    /// Waits for the turn of a task that connects: one at a time while attempts fail, because those without a
    /// reply accumulate on the server.
    pub(crate) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let is_failing = || self.state.is_failing.load(Ordering::Relaxed);
        let turn = if is_failing() { Some(self.state.turn.lock().await) } else { None };
        turn.filter(|_| is_failing())
    }

    pub(crate) fn set_failing(&self, is_failing: bool) {
        self.state.is_failing.store(is_failing, Ordering::Relaxed);
    }

    async fn within_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        timeout(self.connect_timeout, work).await.unwrap_or_else(|_| Err(self.no_connection()))
    }

    fn no_connection(&self) -> PostgresError {
        let error = format!("no connection within {} s", self.connect_timeout.as_secs());
        PostgresError::Unreachable(io::Error::new(io::ErrorKind::TimedOut, error))
    }

    /// Returns the generation of connections that are opened now.
    pub(crate) fn generation(&self) -> u64 {
        self.state.generation.load(Ordering::Relaxed)
    }

    /// Returns true if the last connection leads to the same host.
    pub(crate) fn leads_to(&self, host: &Arc<Host>) -> bool {
        Arc::ptr_eq(host, &self.hosts[self.state.last.load(Ordering::Relaxed)])
    }

    /// Ends this generation and all before: their connections are not used again. Called when one of them
    /// fails, because then the others probably lead to the same server.
    pub(crate) fn end_generation(&self, ended: u64) {
        self.state.generation.fetch_max(ended + 1, Ordering::Relaxed);
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Server {
    type Err = PostgresError;

    /// Parses `postgres://USER:PASSWORD@HOST:PORT,…/DATABASE?sslmode=…`. A host that begins with `/` (`%2F`)
    /// is the directory of a Unix socket; `?host=` may specify it as well.
    ///
    /// Errors: [`PostgresError::InvalidUrl`], [`PostgresError::UnsupportedOption`],
    /// [`PostgresError::InvalidOption`], [`PostgresError::Certificates`].
    fn from_str(url: &str) -> Result<Self, PostgresError> {
        let DatabaseUrl { config, hosts, files, liveness, connect_timeout } = url.parse()?;
        let uses_tls = |name: &str| !name.starts_with('/') && config.get_ssl_mode() != SslMode::Disable;
        let maker = match hosts.iter().any(|(name, _)| uses_tls(name)) {
            true => Some(verifier(files)?),
            false => None,
        };
        let place = |(name, port): &(String, u16)| match name.contains(':') {
            true => format!("[{name}]:{port}"),
            false => format!("{name}:{port}"),
        };
        let places: Vec<_> = hosts.iter().map(place).collect();
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let options = config.get_options().map(|options| format!("?options={options}")).unwrap_or_default();
        let name = format!("postgres://{user}@{}/{database}{options}", places.join(",")).into();
        let host = |(name, port): (String, u16)| {
            let maker = maker.clone().filter(|_| uses_tls(&name));
            let tls = maker.map(|maker| Tls { maker, name: name.clone() });
            let mut config = config.clone();
            if tls.is_none() {
                config.ssl_mode(SslMode::Disable);
            }
            Arc::new(Host { config, tls, network: network(name, port, liveness) })
        };
        let hosts = hosts.into_iter().map(host).collect();
        Ok(Self { name, hosts, connect_timeout, state: Arc::default() })
    }
}

impl Network {
    /// Returns a connector for each address of the host.
    async fn addresses(&self) -> io::Result<Vec<Arc<dyn Connect>>> {
        match self {
            Self::Tcp(tcp, liveness) => {
                let connector =
                    |address| Arc::new(TcpAddress { address, liveness: *liveness }) as Arc<dyn Connect>;
                Ok(tcp.addresses().await?.into_iter().map(connector).collect())
            }
            Self::Other(network) => Ok(vec![network.clone()]),
        }
    }
}

/// Returns the system's network.
fn network(host: String, port: u16, liveness: Liveness) -> Network {
    #[cfg(unix)]
    if host.starts_with('/') {
        return Network::Other(Arc::new(Unix(PathBuf::from(host).join(format!(".s.PGSQL.{port}")))));
    }
    Network::Tcp(Tcp { host, port }, liveness)
}

fn verifier(files: TlsFiles) -> Result<MakeRustlsConnect, PostgresError> {
    let roots = match &files.roots {
        Some(path) => {
            let roots = pem_roots(&read("sslrootcert", path)?);
            roots.map_err(|error| unusable("sslrootcert", path, error.to_string()))?
        }
        // Without root certificates, only a server that offers TLS is an error: verification fails.
        None => system_roots().unwrap_or_else(|_| RootCertStore::empty()),
    };
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let identity = Identity::from_pem(&read("sslcert", certificate)?, &read("sslkey", key)?);
            let identity = identity.map_err(|error| unusable("sslcert", certificate, error.to_string()))?;
            identity.client_config(roots).map_err(|error| unusable("sslkey", key, error.to_string()))?
        }
        _ => client_config(roots),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, PostgresError> {
    fs::read(path).map_err(|error| unusable(option, path, error.to_string()))
}

fn unusable(option: &'static str, path: &Path, reason: String) -> PostgresError {
    PostgresError::Certificates { option, path: path.to_path_buf(), reason }
}
