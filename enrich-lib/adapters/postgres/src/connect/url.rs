//! Parsing of database URLs.
//!
//! `tokio_postgres` parses URLs as well, but accepts options that it ignores on a connection that the caller
//! opens, and takes a part of an unencoded password for a host name.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use enrich_net::{Keepalive, Liveness};
use percent_encoding::percent_decode_str;
use tokio_postgres::config::{ChannelBinding, SslMode};

use crate::error::PostgresError;

/// The port if the URL has none.
const PORT: u16 = 5432;

/// How long connecting to one address may take if the URL has no `connect_timeout`. Short, because a node serves
/// again within 5 s after a failover, also if the other hosts do not respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of a database URL.
pub(crate) struct DatabaseUrl {
    /// The user, the database and what else the startup message contains. Has no hosts.
    pub(crate) config: tokio_postgres::Config,
    /// At least one, with its port.
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) files: TlsFiles,
    pub(crate) liveness: Liveness,
    pub(crate) connect_timeout: Duration,
}

/// The files that the URL names for TLS.
#[derive(Default)]
pub(crate) struct TlsFiles {
    pub(crate) roots: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl FromStr for DatabaseUrl {
    type Err = PostgresError;

    fn from_str(url: &str) -> Result<Self, PostgresError> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let (location, query) = split(rest.ok_or(PostgresError::InvalidUrl)?)?;
        let mut parser = Parser { has_password: query.contains("password="), ..Parser::default() };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(PostgresError::InvalidUrl)?;
            parser.option(name, &decoded(value)?)?;
        }
        let (authority, database) = location.split_once('/').unwrap_or((location, ""));
        let (login, hosts) =
            authority.split_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        parser.login(login)?;
        if !database.is_empty() {
            parser.config.dbname(decoded(database)?);
        }
        parser.finish(hosts)
    }
}

/// Splits the URL without its scheme into the location and the options.
///
/// Errors: the user or the password contains an unencoded `@`, `/`, `?` or `#`. No part of the URL is used
/// then: a part of the password could be taken for a host or an option.
fn split(rest: &str) -> Result<(&str, &str), PostgresError> {
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = location.split('/').next().unwrap_or_default();
    let is_ambiguous = rest.matches('@').count() > authority.matches('@').count().min(1)
        || rest.contains('#')
        || location.matches('/').count() > 1;
    if is_ambiguous { Err(PostgresError::InvalidUrl) } else { Ok((location, query)) }
}

struct Parser {
    /// True if the options contain a password. A part of it could be taken for an option, so unknown names
    /// are not printed.
    has_password: bool,
    config: tokio_postgres::Config,
    hosts: Option<String>,
    ports: Option<String>,
    files: TlsFiles,
    has_keepalives: bool,
    keepalive: Keepalive,
    user_timeout: Option<Duration>,
    connect_timeout: Duration,
}

impl Default for Parser {
    fn default() -> Self {
        let Liveness { keepalive, user_timeout } = Liveness::default();
        let mut config = tokio_postgres::Config::new();
        config.application_name("enrich");
        Self {
            has_password: false,
            config,
            hosts: None,
            ports: None,
            files: TlsFiles::default(),
            has_keepalives: true,
            keepalive: keepalive.expect("the default has keepalives"),
            user_timeout,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

impl Parser {
    fn option(&mut self, name: &str, value: &str) -> Result<(), PostgresError> {
        let invalid = |option, expected| Err(PostgresError::InvalidOption { option, expected });
        match name {
            "user" => {
                self.config.user(value);
            }
            "password" => {
                self.config.password(value);
            }
            "dbname" => {
                self.config.dbname(value);
            }
            "host" => self.hosts = Some(value.to_owned()),
            "port" => self.ports = Some(value.to_owned()),
            "application_name" => {
                self.config.application_name(value);
            }
            "options" => {
                self.config.options(value);
            }
            "sslmode" => match value {
                "disable" => {
                    self.config.ssl_mode(SslMode::Disable);
                }
                "prefer" => {
                    self.config.ssl_mode(SslMode::Prefer);
                }
                "require" | "verify-ca" | "verify-full" => {
                    self.config.ssl_mode(SslMode::Require);
                }
                _ => return invalid("sslmode", "disable, prefer, require or verify-full"),
            },
            "sslrootcert" => self.files.roots = Some(value.into()).filter(|_| value != "system"),
            "sslcert" => self.files.certificate = Some(value.into()),
            "sslkey" => self.files.key = Some(value.into()),
            "channel_binding" => match value {
                "disable" => {
                    self.config.channel_binding(ChannelBinding::Disable);
                }
                "prefer" => {
                    self.config.channel_binding(ChannelBinding::Prefer);
                }
                "require" => {
                    self.config.channel_binding(ChannelBinding::Require);
                }
                _ => return invalid("channel_binding", "disable, prefer or require"),
            },
            "target_session_attrs" => match value {
                "read-write" | "primary" => {}
                _ => return invalid("target_session_attrs", "read-write, because every node writes"),
            },
            "connect_timeout" => self.connect_timeout = seconds("connect_timeout", value)?,
            "keepalives" => match value {
                "0" => self.has_keepalives = false,
                "1" => self.has_keepalives = true,
                _ => return invalid("keepalives", "0 or 1"),
            },
            "keepalives_idle" => self.keepalive.idle = seconds("keepalives_idle", value)?,
            "keepalives_interval" => self.keepalive.interval = seconds("keepalives_interval", value)?,
            "keepalives_count" => match value.parse() {
                Ok(count @ 1..) => self.keepalive.count = count,
                _ => return invalid("keepalives_count", "a positive number"),
            },
            "tcp_user_timeout" => match value.parse::<u32>() {
                Ok(0) => self.user_timeout = None,
                Ok(ms) => self.user_timeout = Some(Duration::from_millis(ms.into())),
                Err(_) => {
                    return invalid(
                        "tcp_user_timeout",
                        "a number of milliseconds, or 0 for the system's default",
                    );
                }
            },
            _ if self.has_password => return Err(PostgresError::InvalidUrl),
            name => return Err(PostgresError::UnsupportedOption(name.to_owned())),
        }
        Ok(())
    }

    fn login(&mut self, login: Option<&str>) -> Result<(), PostgresError> {
        let Some(login) = login else { return Ok(()) };
        let (user, password) =
            login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        self.config.user(decoded(user)?);
        if let Some(password) = password {
            self.config.password(percent_decode_str(password).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn finish(self, authority: &str) -> Result<DatabaseUrl, PostgresError> {
        let hosts = match (&self.hosts, &self.ports) {
            (None, None) => hosts(authority)?,
            (Some(_), _) if !authority.is_empty() => return Err(PostgresError::InvalidUrl),
            (None, Some(_)) => return Err(PostgresError::InvalidUrl),
            (Some(hosts), ports) => with_ports(hosts, ports.as_deref())?,
        };
        if self.files.certificate.is_some() != self.files.key.is_some() {
            let (option, expected) = ("sslcert", "it together with sslkey");
            return Err(PostgresError::InvalidOption { option, expected });
        }
        let liveness = Liveness {
            keepalive: Some(self.keepalive).filter(|_| self.has_keepalives),
            user_timeout: self.user_timeout,
        };
        let Self { config, files, connect_timeout, .. } = self;
        Ok(DatabaseUrl { config, hosts, files, liveness, connect_timeout })
    }
}

/// Parses `HOST:PORT,[IPV6]:PORT,…`. The ports are optional.
fn hosts(authority: &str) -> Result<Vec<(String, u16)>, PostgresError> {
    let parse = |host: &str| {
        let (name, port) = match host.strip_prefix('[') {
            Some(host) => host.split_once(']').ok_or(PostgresError::InvalidUrl)?,
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| PostgresError::InvalidUrl)?,
            None if port.is_empty() => PORT,
            None => return Err(PostgresError::InvalidUrl),
        };
        host_name(&decoded(name)?).map(|name| (name, port))
    };
    authority.split(',').map(parse).collect()
}

/// Parses the options `host` and `port`. One port applies to all hosts.
fn with_ports(hosts: &str, ports: Option<&str>) -> Result<Vec<(String, u16)>, PostgresError> {
    let hosts: Vec<_> = hosts.split(',').map(host_name).collect::<Result<_, _>>()?;
    let port = |port: &str| if port.is_empty() { Ok(PORT) } else { port.parse() };
    let expected = "one port, or as many as hosts";
    let invalid = || PostgresError::InvalidOption { option: "port", expected };
    let ports: Vec<u16> =
        ports.unwrap_or_default().split(',').map(port).collect::<Result<_, _>>().map_err(|_| invalid())?;
    match ports.as_slice() {
        [port] => Ok(hosts.into_iter().map(|host| (host, *port)).collect()),
        ports if ports.len() == hosts.len() => Ok(hosts.into_iter().zip(ports.iter().copied()).collect()),
        _ => Err(invalid()),
    }
}

/// Accepts a host name, an IP address, or the directory of a Unix socket.
fn host_name(name: &str) -> Result<String, PostgresError> {
    let is_valid = !name.is_empty() && (name.starts_with('/') || !name.contains(['@', '/', ' ']));
    if is_valid { Ok(name.to_owned()) } else { Err(PostgresError::InvalidUrl) }
}

fn seconds(option: &'static str, value: &str) -> Result<Duration, PostgresError> {
    match value.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err(PostgresError::InvalidOption { option, expected: "a positive number of seconds" }),
    }
}

fn decoded(text: &str) -> Result<String, PostgresError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| PostgresError::InvalidUrl)?;
    Ok(decoded.into_owned())
}
