//! A server or Cluster, and connections to it.

use std::sync::Arc;
use std::time::Duration;

use enrich_net::{Connect, Tcp, Unix};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisResult, TlsCertificates, TlsMode,
};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::connect::{self, OpenError};
use crate::counter::Counter;
use crate::error::WindowStoreError;
use crate::policy::RedisPolicy;
use crate::url::{Login, RedisUrl, Target};

/// The server or Cluster to connect to.
pub(crate) enum Server {
    One { connect: Arc<dyn Connect>, login: Login },
    Cluster(Box<ClusterClient>),
}

/// A connection shared by all counts. Requests are pipelined; replies arrive in request order.
pub(crate) enum Connection {
    One { multiplexed: MultiplexedConnection, driver: AbortHandle },
    Cluster(ClusterConnection),
}

/// The maximum number of retries of the Cluster client, for example after a slot has moved.
const REDIRECTS_MAX: u32 = 3;

impl Server {
    pub(crate) fn open(url: &RedisUrl, policy: RedisPolicy) -> Result<Self, OpenError> {
        if url.authority.is_some() && !url.is_tls {
            return Err(OpenError::NotTls);
        }
        let connect: Arc<dyn Connect> = match &url.target {
            Target::Server(node) if url.is_tls => connect::tls(node, url.authority.as_deref())?,
            Target::Server(node) => Arc::new(node.clone()),
            Target::Socket(path) => Arc::new(Unix(path.clone())),
            Target::Cluster(nodes) => {
                let client = cluster(url, nodes, policy);
                let client = client.map_err(|error| OpenError::Cluster(error.category().to_owned()))?;
                return Ok(Self::Cluster(Box::new(client)));
            }
        };
        Ok(Self::One { connect, login: url.login.clone() })
    }

    /// Connects and authenticates within `limit`, and waits for the reply to a PING, because a hung server
    /// still accepts connections.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Connection, WindowStoreError> {
        timeout(limit, self.connect_slowly()).await.unwrap_or_else(|_| {
            Err(WindowStoreError::Unreachable(format!("no connection within {} ms", limit.as_millis())))
        })
    }

    async fn connect_slowly(&self) -> Result<Connection, WindowStoreError> {
        let (connect, login) = match self {
            Self::One { connect, login } => (connect, login),
            Self::Cluster(client) => {
                let connected = client.get_async_connection().await;
                return connected
                    .map(Connection::Cluster)
                    .map_err(|error| WindowStoreError::of_connecting(&error));
            }
        };
        let stream =
            connect.connect().await.map_err(|error| WindowStoreError::Unreachable(error.to_string()))?;
        // The caller of each count applies the timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connected = MultiplexedConnection::new_with_config(&login.info(), stream, config).await;
        let (multiplexed, driver) = connected.map_err(|error| WindowStoreError::of_connecting(&error))?;
        let driver = tokio::spawn(driver).abort_handle();
        let mut ping_connection = multiplexed.clone();
        let connection = Connection::One { multiplexed, driver };
        let pinged = redis::cmd("PING").exec_async(&mut ping_connection).await;
        pinged.map(|()| connection).map_err(|error| WindowStoreError::of_connecting(&error))
    }
}

fn cluster(url: &RedisUrl, nodes: &[Tcp], policy: RedisPolicy) -> RedisResult<ClusterClient> {
    let infos = nodes.iter().map(|Tcp { host, port }| {
        let (host, port) = (host.clone(), *port);
        let address = if url.is_tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        address.into_connection_info().map(|info| info.set_redis_settings(url.login.info()))
    });
    let mut builder = ClusterClient::builder(infos.collect::<RedisResult<Vec<_>>>()?)
        .retries(REDIRECTS_MAX)
        .min_retry_wait(1)
        .max_retry_wait(20)
        // Connecting waits for each server in the URL, also for one that does not respond. While the client connects
        // again because it lacks a server, no count is sent.
        .connection_timeout(policy.timeout * 2)
        .response_timeout(policy.timeout);
    if url.is_tls {
        let root_cert = url.authority.clone();
        builder = builder.tls(TlsMode::Secure).certs(TlsCertificates { client_tls: None, root_cert });
    }
    builder.build()
}

impl Connection {
    /// Adds `requests` to the counter and returns the new count.
    pub(crate) async fn count(&self, counter: &Counter, requests: u64) -> Result<u64, WindowStoreError> {
        match self {
            Self::One { multiplexed, .. } => counter.count(requests, &mut multiplexed.clone()).await,
            Self::Cluster(cluster) => counter.count(requests, &mut cluster.clone()).await,
        }
    }

    pub(crate) fn is_to_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns whether the connection has closed. The Cluster client reconnects by itself.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::One { driver, .. } if driver.is_finished())
    }
}

/// Closes the connection at once and discards unsent requests.
impl Drop for Connection {
    fn drop(&mut self) {
        if let Self::One { driver, .. } = self {
            driver.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_certificate_authorities_without_tls() {
        for url in ["redis://a", "redis+cluster://a,b", "redis+unix:///run/redis.sock"] {
            let url = url.parse::<RedisUrl>().unwrap().trusting("a certificate");
            assert!(matches!(Server::open(&url, RedisPolicy::default()), Err(OpenError::NotTls)));
        }
    }
}
