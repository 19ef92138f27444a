//! Parsing of Redis URLs.

use std::path::PathBuf;
use std::str::FromStr;

use enrich_net::Tcp;
use percent_encoding::percent_decode_str;
use redis::RedisConnectionInfo;
use thiserror::Error;

/// The address of a server or a Cluster, with the credentials.
///
/// ```text
/// redis://[[user]:password@]host[:port][/db]             plain
/// rediss://…                                             over TLS
/// redis+unix://[[user]:password@]/path/to/socket         on this machine
/// redis+cluster://[[user]:password@]host[:port][,host…]  a Cluster, by some of its nodes
/// rediss+cluster://…                                     over TLS
/// ```
///
/// `valkey` may replace `redis` in the scheme. The default port is 6379. User and password may contain
/// percent-encoded characters. `Debug` and errors never contain the password.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("RedisUrl {{ target: {target:?}, is_tls: {is_tls:?}, login: {login:?}, .. }}")]
pub struct RedisUrl {
    pub(crate) target: Target,
    pub(crate) is_tls: bool,
    pub(crate) login: Login,
    pub(crate) authority: Option<Vec<u8>>,
}

/// The location of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Tcp),
    Socket(PathBuf),
    Cluster(Vec<Tcp>),
}

/// The credentials and the database of a connection. `Debug` hides the password.
#[derive(Clone, derive_more::Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None` selects the server's `default` user.
    pub user: Option<String>,
    /// The password of the user, or of `requirepass`.
    #[debug("{:?}", password.as_ref().map(|_| "…"))]
    pub password: Option<String>,
    /// The database number.
    pub db: u32,
}

/// An error of parsing a [`RedisUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisUrlError {
    /// The scheme is unknown.
    #[error(
        "a Redis URL must begin with redis://, rediss://, redis+unix://, redis+cluster:// or rediss+cluster://"
    )]
    Scheme,
    /// The host is missing.
    #[error("a Redis URL must name a host, as in redis://redis.internal:6379")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port of a Redis URL must be a number from 1 to 65535")]
    Port,
    /// The database is not a number.
    #[error("the path of a Redis URL must be the number of a database, as in redis://redis.internal/2")]
    Database,
    /// A Cluster supports only database 0.
    #[error("a Redis Cluster has only database 0; remove the path from the URL")]
    ClusterDatabase,
    /// The URL of a Cluster has a login for each host.
    #[error(
        "a Redis Cluster has one user and password, before its first host; in a password, write %2C for , and %40 for @"
    )]
    ClusterLogin,
    /// A URL for a single server has several hosts.
    #[error("several hosts require a Cluster URL; use redis+cluster:// or rediss+cluster://")]
    SeveralHosts,
    /// The path of the socket is missing or not absolute.
    #[error("the path of a Redis socket must be absolute, as in redis+unix:///run/redis/redis.sock")]
    Socket,
    /// A user is given without a password.
    #[error("a Redis user requires a password, as in redis://user:password@host")]
    Password,
    /// The percent-encoded text is not valid UTF-8.
    #[error("user and password of a Redis URL must be percent-encoded UTF-8")]
    Encoding,
    /// The URL contains `?` or `#`.
    #[error("a Redis URL cannot have parameters; in a password, write %3F for ? and %23 for #")]
    Parameters,
}

impl RedisUrl {
    /// Returns whether connections use TLS.
    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Trusts only the given certificate authorities (PEM) for TLS, instead of those that the system trusts. A URL
    /// without TLS then fails to open with [`OpenError::NotTls`](crate::OpenError::NotTls).
    #[must_use]
    pub fn trusting(self, authority: impl Into<Vec<u8>>) -> Self {
        Self { authority: Some(authority.into()), ..self }
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(RedisUrlError::Scheme)?;
        if rest.contains(['?', '#']) {
            return Err(RedisUrlError::Parameters);
        }
        // Split at the last `@`: earlier ones belong to the password.
        let (login, target) = match rest.rsplit_once('@') {
            Some((login, _))
                if scheme.ends_with("+cluster") && login.contains('@') && login.contains(',') =>
            {
                return Err(RedisUrlError::ClusterLogin);
            }
            Some((login, target)) => (Login::parse(login)?, target),
            None => (Login::default(), rest),
        };
        let (target, db, is_tls) = match scheme {
            "redis" | "valkey" => (server(target)?, database(target)?, false),
            "rediss" | "valkeys" => (server(target)?, database(target)?, true),
            "redis+cluster" | "valkey+cluster" => (cluster(target)?, 0, false),
            "rediss+cluster" | "valkeys+cluster" => (cluster(target)?, 0, true),
            "redis+unix" | "valkey+unix" => (socket(target)?, 0, false),
            _ => return Err(RedisUrlError::Scheme),
        };
        Ok(Self { target, is_tls, login: Login { db, ..login }, authority: None })
    }
}

fn server(text: &str) -> Result<Target, RedisUrlError> {
    let host = text.split('/').next().unwrap_or_default();
    if host.contains(',') { Err(RedisUrlError::SeveralHosts) } else { Ok(Target::Server(node(host)?)) }
}

fn database(text: &str) -> Result<u32, RedisUrlError> {
    match text.split_once('/') {
        None | Some((_, "")) => Ok(0),
        Some((_, db)) => db.parse().map_err(|_| RedisUrlError::Database),
    }
}

fn cluster(text: &str) -> Result<Target, RedisUrlError> {
    if database(text)? != 0 {
        return Err(RedisUrlError::ClusterDatabase);
    }
    let hosts = text.split('/').next().unwrap_or_default();
    hosts.split(',').map(node).collect::<Result<_, _>>().map(Target::Cluster)
}

fn socket(text: &str) -> Result<Target, RedisUrlError> {
    if text.len() > 1 && text.starts_with('/') {
        Ok(Target::Socket(decode(text)?.into()))
    } else {
        Err(RedisUrlError::Socket)
    }
}

/// Parses `host`, `host:port`, or an IPv6 address in brackets.
fn node(text: &str) -> Result<Tcp, RedisUrlError> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => (host, Some(rest.strip_prefix(':').ok_or(RedisUrlError::Port)?)),
        Some(None) => return Err(RedisUrlError::Host),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(RedisUrlError::Port)?,
        None => 6379,
    };
    if host.is_empty() { Err(RedisUrlError::Host) } else { Ok(Tcp { host: host.to_owned(), port }) }
}

fn decode(text: &str) -> Result<String, RedisUrlError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| RedisUrlError::Encoding)?;
    Ok(decoded.into_owned())
}

impl Login {
    fn parse(text: &str) -> Result<Self, RedisUrlError> {
        let (user, password) = text.split_once(':').ok_or(RedisUrlError::Password)?;
        let user = Some(decode(user)?).filter(|user| !user.is_empty());
        let password = Some(decode(password)?).filter(|password| !password.is_empty());
        if password.is_none() { Err(RedisUrlError::Password) } else { Ok(Self { user, password, db: 0 }) }
    }

    /// Converts the login for the `redis` crate. Skips sending the client library's name, which saves a round
    /// trip per connection.
    pub(crate) fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(self.db.into()).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RedisUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn at(host: &str, port: u16) -> Tcp {
        Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn parses_server_socket_and_cluster_urls() {
        let url = parse("rediss://counter:p%40ss@redis.internal:7000/2");
        assert_eq!((url.target, url.is_tls), (Target::Server(at("redis.internal", 7000)), true));
        let (user, password) = (Some("counter".to_owned()), Some("p@ss".to_owned()));
        assert_eq!(url.login, Login { user, password, db: 2 });

        let url = parse("valkey://:p@s/s@[::1]");
        assert_eq!((url.target, url.is_tls), (Target::Server(at("::1", 6379)), false));
        assert_eq!(url.login, Login { password: Some("p@s/s".to_owned()), ..Login::default() });

        assert_eq!(parse("redis+unix:///run/redis.sock").target, Target::Socket("/run/redis.sock".into()));
        let url = parse("rediss+cluster://a,b:7001,[fe80::1]:7002/");
        let nodes = vec![at("a", 6379), at("b", 7001), at("fe80::1", 7002)];
        assert_eq!((url.target, url.is_tls), (Target::Cluster(nodes), true));
    }

    #[test]
    fn rejects_invalid_urls_with_reason() {
        for (text, error) in [
            ("", RedisUrlError::Scheme),
            ("localhost:6379", RedisUrlError::Scheme),
            ("http://localhost", RedisUrlError::Scheme),
            ("redis://", RedisUrlError::Host),
            ("redis://:6379", RedisUrlError::Host),
            ("redis+cluster://a,", RedisUrlError::Host),
            ("redis://[::1", RedisUrlError::Host),
            ("redis://a:0", RedisUrlError::Port),
            ("redis://a:65536", RedisUrlError::Port),
            ("redis://a:", RedisUrlError::Port),
            ("redis://[::1]6379", RedisUrlError::Port),
            ("redis://a/b", RedisUrlError::Database),
            ("redis://a/-1", RedisUrlError::Database),
            ("redis+cluster://a/1", RedisUrlError::ClusterDatabase),
            ("redis+cluster://a:pw@h1,b:pw@h2", RedisUrlError::ClusterLogin),
            ("redis://a,b", RedisUrlError::SeveralHosts),
            ("redis+unix://run/redis.sock", RedisUrlError::Socket),
            ("redis+unix:///", RedisUrlError::Socket),
            ("redis://user@a", RedisUrlError::Password),
            ("redis://user:@a", RedisUrlError::Password),
            ("redis://:%ff@a", RedisUrlError::Encoding),
            ("redis://a?db=1", RedisUrlError::Parameters),
            ("rediss://a#insecure", RedisUrlError::Parameters),
        ] {
            assert_eq!(text.parse::<RedisUrl>(), Err(error), "{text}");
        }
    }

    #[test]
    fn debug_hides_password() {
        let shown = format!("{:?}", parse("redis://counter:hunter2@redis.internal"));
        assert!(shown.contains("counter") && shown.contains("redis.internal"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
