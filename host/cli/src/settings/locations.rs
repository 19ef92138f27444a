//! The locations of accounts and rate-limit windows of `serve`, from the settings file and the flags.

use std::fmt;
use std::path::Path;

use enrich_provider::{SettingError, SettingErrors};
use enrich_redis::RedisUrl;

use super::file::Config;
use super::reading::Reading;
use super::url_source::UrlSource;
use crate::accounts;
use crate::failure::Failure;
use crate::url::ServerUrl;

/// The locations of the stores that nodes can share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocations {
    /// The PostgreSQL server with the accounts. If `None`, they are in the data directory.
    pub database: Option<ServerUrl>,
    pub windows: WindowStore,
}

/// The rate-limit store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowStore {
    /// The memory of this process.
    Memory,
    Redis(ServerUrl),
}

impl StoreLocations {
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
        let is_single_node = database.is_none() && errors.is_empty();
        let windows = errors.check(load("windows", windows, file.windows.as_ref(), reading)).flatten();
        let windows = match windows {
            Some(url) if url.reveal() == "memory" => WindowStore::Memory,
            Some(url) => {
                errors.check(parse_redis_url(&url).map_err(|failure| failure.of_setting("windows")));
                WindowStore::Redis(url)
            }
            None if is_single_node => WindowStore::Memory,
            None => {
                let why = "must be set with a database, because several nodes may share it; set --windows redis://HOST for \
                           several nodes, or --windows memory if this is the only node";
                errors.push(SettingError::new("windows", why));
                WindowStore::Memory
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
pub fn parse_redis_url(url: &ServerUrl) -> Result<RedisUrl, Failure> {
    url.reveal().parse().map_err(|error| windows_error(url, error))
}

pub fn windows_error(url: &ServerUrl, why: impl std::error::Error) -> Failure {
    Failure::new(format!("cannot use {url} as the rate-limit store: {why}"))
        .advise("set --windows to `memory` or to a URL such as redis://HOST")
}

impl fmt::Display for WindowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => write!(f, "Redis at {url}"),
        }
    }
}
