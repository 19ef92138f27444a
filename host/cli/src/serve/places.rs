//! The locations of accounts and rate-limit windows of `serve`, from the settings file and the flags.

use std::fmt;
use std::path::Path;

use enrich_provider::{SettingError, SettingErrors};
use enrich_redis::RedisUrl;

use crate::accounts;
use crate::config::{Config, Reading, UrlSource};
use crate::failure::Failure;
use crate::url::ServerUrl;

/// The locations of the stores that nodes can share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The PostgreSQL server with the accounts. If `None`, they are in the data directory.
    pub database: Option<ServerUrl>,
    pub windows: WindowsAt,
}

/// The rate-limit store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowsAt {
    /// The memory of this process.
    Memory,
    Redis(ServerUrl),
}

impl Places {
    /// Resolves the locations. Flags take precedence over the file.
    ///
    /// Errors: all mistakes in `database` and `windows`.
    pub fn resolve(
        database: Option<&ServerUrl>,
        windows: Option<&ServerUrl>,
        file: &Config,
        reading: &Reading,
    ) -> Result<Self, SettingErrors> {
        let mut errors = SettingErrors::default();
        let database = errors.check(load("database", database, file.database.as_ref(), reading)).flatten();
        if let Some(url) = &database {
            errors.check(accounts::server(url).map_err(|failure| failure.of_setting("database")));
        }
        let is_alone = database.is_none() && errors.is_empty();
        let windows = errors.check(load("windows", windows, file.windows.as_ref(), reading)).flatten();
        let windows = match windows {
            Some(url) if url.reveal() == "memory" => WindowsAt::Memory,
            Some(url) => {
                errors.check(redis(&url).map_err(|failure| failure.of_setting("windows")));
                WindowsAt::Redis(url)
            }
            None if is_alone => WindowsAt::Memory,
            None => {
                let why = "several nodes may serve this database, and each would count requests by itself: where they \
                           are counted has to be said; --windows redis://HOST counts them together; --windows memory \
                           says that this is the only node";
                errors.push(SettingError::new("windows", why));
                WindowsAt::Memory
            }
        };
        if errors.is_empty() { Ok(Self { database, windows }) } else { Err(errors) }
    }

    /// Returns the location of the accounts as readable text.
    pub fn accounts(&self, data: &Path) -> String {
        match &self.database {
            Some(url) => format!("PostgreSQL at {url}"),
            None => format!("SQLite in {}", data.display()),
        }
    }
}

fn load(
    setting: &str,
    flag: Option<&ServerUrl>,
    source: Option<&UrlSource>,
    reading: &Reading,
) -> Result<Option<ServerUrl>, SettingError> {
    match flag {
        Some(url) => Ok(Some(url.clone())),
        None => source.map(|source| source.load(setting, reading)).transpose(),
    }
}

/// Parses the URL of Redis. Does not connect: the server connects with its first request.
pub fn redis(url: &ServerUrl) -> Result<RedisUrl, Failure> {
    url.reveal().parse().map_err(|error| no_windows(url, error))
}

pub fn no_windows(url: &ServerUrl, why: impl std::error::Error) -> Failure {
    Failure::new(format!("can't count requests at {url}: {why}"))
        .advise("--windows is `memory`, or a URL such as redis://HOST")
}

impl fmt::Display for WindowsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => write!(f, "Redis at {url}"),
        }
    }
}
