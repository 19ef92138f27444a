//! Parsing of database URLs.
//!
//! `tokio_postgres` parses the location, the login and the options of a session. It would ignore the other
//! options, because the caller opens the connection, and takes a part of an unencoded password for a host name.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use enrich_net::Liveness;
use percent_encoding::percent_decode_str;
use tokio_postgres::config::Host;

use crate::error::PostgresError;

/// How long connecting to one address may take if the URL has no `connect_timeout`. Short, because a node serves
/// again within 5 s after a failover, also if the other hosts do not respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

const SECONDS: &str = "a positive number of seconds";

/// The options with a limited set of values.
const EXPECTED: [(&str, &str); 9] = [
    ("sslmode", "disable, prefer, require or verify-full"),
    ("channel_binding", "disable, prefer or require"),
    ("target_session_attrs", "read-write, because every node writes"),
    ("connect_timeout", SECONDS),
    ("keepalives", "0 or 1"),
    ("keepalives_idle", SECONDS),
    ("keepalives_interval", SECONDS),
    ("keepalives_count", "a positive number"),
    ("tcp_user_timeout", "a number of milliseconds, or 0 for the system's default"),
];

/// The parts of a database URL.
pub(crate) struct DatabaseUrl {
    /// The user, the database and what else the startup message contains.
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
        let (location, query) = split(url)?;
        let (mut files, mut connect_timeout) = (TlsFiles::default(), CONNECT_TIMEOUT);
        let (mut liveness, mut has_keepalives) = (Liveness::default(), true);
        let keepalive = liveness.keepalive.as_mut().expect("the default has keepalives");
        let mut of_session = "application_name=enrich".to_owned();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(PostgresError::InvalidUrl)?;
            let text = percent_decode_str(value).decode_utf8().map_err(|_| PostgresError::InvalidUrl)?;
            match (name, &*text, text.parse::<u32>().ok()) {
                ("user" | "password" | "dbname" | "port" | "application_name" | "options", ..)
                | ("sslmode" | "channel_binding", "disable" | "prefer" | "require", _) => {
                    of_session += &format!("&{option}");
                }
                ("host", ..) => of_session.extend(value.split(',').map(|host| format!("&host={host}"))),
                ("sslmode", "verify-ca" | "verify-full", _) => of_session += "&sslmode=require",
                ("sslrootcert", ..) => files.roots = Some(PathBuf::from(&*text)).filter(|_| text != "system"),
                ("sslcert", ..) => files.certificate = Some(PathBuf::from(&*text)),
                ("sslkey", ..) => files.key = Some(PathBuf::from(&*text)),
                ("target_session_attrs", "read-write" | "primary", _) => {}
                ("connect_timeout", _, Some(s @ 1..)) => connect_timeout = Duration::from_secs(s.into()),
                ("keepalives", "0" | "1", _) => has_keepalives = text == "1",
                ("keepalives_idle", _, Some(s @ 1..)) => keepalive.idle = Duration::from_secs(s.into()),
                ("keepalives_interval", _, Some(s @ 1..)) => {
                    keepalive.interval = Duration::from_secs(s.into());
                }
                ("keepalives_count", _, Some(count @ 1..)) => keepalive.count = count,
                ("tcp_user_timeout", _, Some(ms)) => {
                    liveness.user_timeout = Some(Duration::from_millis(ms.into())).filter(|_| ms > 0);
                }
                _ => return Err(refused(name, query)),
            }
        }
        if files.certificate.is_some() != files.key.is_some() {
            return Err(PostgresError::InvalidOption {
                option: "sslcert",
                expected: "it together with sslkey",
            });
        }
        liveness.keepalive = liveness.keepalive.filter(|_| has_keepalives);
        let config = format!("{location}?{of_session}").parse::<tokio_postgres::Config>();
        let config = config.map_err(|_| PostgresError::InvalidUrl)?;
        Ok(Self { hosts: hosts(&config)?, config, files, liveness, connect_timeout })
    }
}

/// Splits the URL into the location and the options.
///
/// Errors: the user or the password contains an unencoded `@`, `/`, `?` or `#`. No part of the URL is used
/// then: a part of the password could be taken for a host or an option. Both parts name a host.
fn split(url: &str) -> Result<(&str, &str), PostgresError> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let rest = rest.ok_or(PostgresError::InvalidUrl)?;
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let has_host = !authority.rsplit('@').next().unwrap_or_default().is_empty();
    let is_ambiguous = rest.matches('@').count() > authority.matches('@').count().min(1)
        || url.contains('#')
        || location.matches('/').count() > 3
        || has_host && query.split('&').any(|option| option.starts_with("host="));
    if is_ambiguous { Err(PostgresError::InvalidUrl) } else { Ok((location, query)) }
}

/// Returns the error for an option. A part of a password in the options could be taken for an option, so the
/// names of unknown ones are then not printed.
fn refused(name: &str, query: &str) -> PostgresError {
    match EXPECTED.iter().find(|(option, _)| *option == name) {
        Some(&(option, expected)) => PostgresError::InvalidOption { option, expected },
        None if query.contains("password=") => PostgresError::InvalidUrl,
        None => PostgresError::UnsupportedOption(name.to_owned()),
    }
}

/// Returns the hosts with their ports. One port applies to all hosts. A host is a name, an IP address, or the
/// directory of a Unix socket.
fn hosts(config: &tokio_postgres::Config) -> Result<Vec<(String, u16)>, PostgresError> {
    let ports: &[u16] = match config.get_ports() {
        [] => &[5432],
        ports if ports.len() == 1 || ports.len() == config.get_hosts().len() => ports,
        _ => {
            let expected = "one port, or as many as hosts";
            return Err(PostgresError::InvalidOption { option: "port", expected });
        }
    };
    let name = |host: &Host| match host {
        Host::Tcp(name) if name.is_empty() || name.contains(['@', '/', ' ']) => None,
        Host::Tcp(name) => Some(name.clone()),
        #[cfg(unix)]
        Host::Unix(directory) => directory.to_str().map(str::to_owned),
    };
    let hosts = config.get_hosts().iter().map(name).zip(ports.iter().copied().cycle());
    let hosts: Option<Vec<_>> = hosts.map(|(name, port)| Some((name?, port))).collect();
    hosts.filter(|hosts| !hosts.is_empty()).ok_or(PostgresError::InvalidUrl)
}
