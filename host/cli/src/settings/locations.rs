//! The locations of accounts and rate-limit windows of `serve`, from the merged settings.

use std::fmt;
use std::path::{Path, PathBuf};

use enrich_net::pem_roots;
use enrich_redis::{RedisUrl, RedisUrlError};
use enrich_vendors::provider::SettingError;

use super::config::Config;
use super::text_source::{PeopleKey, UrlSource};
use crate::accounts;
use crate::failure::Failure;
use crate::url::ServerUrl;

/// The locations of the stores that nodes can share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocations {
    /// The PostgreSQL server with the accounts. If `None`, they are in the data directory.
    pub database: Option<ServerUrl>,
    pub people: PeopleLocation,
    pub windows: WindowStore,
}

/// The location of people and opt-outs, and the key of their hashes.
#[derive(Clone, PartialEq, Eq)]
pub enum PeopleLocation {
    /// A data directory. It has a key of its own unless `key` is set.
    Dir { data: PathBuf, key: Option<[u8; 16]> },
    /// A PostgreSQL server.
    Database { url: ServerUrl, key: [u8; 16] },
}

/// The rate-limit store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowStore {
    /// The memory of this process.
    Memory,
    Redis(RedisServer),
}

/// A Redis server or Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisServer {
    /// The URL as it was set.
    pub shown: ServerUrl,
    pub url: RedisUrl,
}

impl StoreLocations {
    /// Resolves the locations.
    pub fn resolve(config: &Config) -> Result<Self, SettingError> {
        let load = |setting, source: &Option<UrlSource>| {
            source.as_ref().map(|source| source.load(setting)).transpose()
        };
        let database = load("database", &config.database)?;
        if let Some(url) = &database {
            accounts::server(url).map_err(|failure| failure.of_setting("database"))?;
        }
        let windows = match load("windows", &config.windows)? {
            Some(url) if url.reveal() == "memory" => WindowStore::Memory,
            Some(url) => WindowStore::Redis(RedisServer::parse(url)?),
            None if database.is_none() => WindowStore::Memory,
            None => {
                let why = "must be set with a database, because several nodes may share it; set it to redis://HOST for \
                           several nodes, or to memory if this is the only node";
                return Err(SettingError::new("windows", why));
            }
        };
        let windows = match &config.windows_ca {
            Some(authority) => windows.trusting(authority)?,
            None => windows,
        };
        let people = PeopleLocation::resolve(config, database.as_ref())?;
        Ok(Self { database, people, windows })
    }

    /// Returns the location of the accounts as readable text.
    pub fn accounts(&self, data: &Path) -> String {
        match &self.database {
            Some(url) => format!("PostgreSQL at {url}"),
            None => format!("SQLite in {}", data.display()),
        }
    }
}

impl PeopleLocation {
    /// Resolves the location, with the loaded URL of the database.
    pub fn resolve(config: &Config, database: Option<&ServerUrl>) -> Result<Self, SettingError> {
        const KEY: &str = "people.key";
        let key = config.people.key.as_ref().map(|source| source.load(KEY)).transpose()?;
        let key = key.map(|PeopleKey(key)| key);
        let data = config.data.clone();
        let Some(url) = database.cloned() else { return Ok(Self::Dir { data, key }) };
        let key = key.ok_or_else(|| {
            let why = "must be set with a database; set it to that of the other nodes, or to a new one, which `openssl rand \
                       -hex 16` prints";
            SettingError::new(KEY, why)
        })?;
        Ok(Self::Database { url, key })
    }

    /// Returns the key in the settings.
    pub fn key(&self) -> Option<[u8; 16]> {
        match self {
            Self::Dir { key, .. } => *key,
            Self::Database { key, .. } => Some(*key),
        }
    }

    /// Returns the data directory that is used, if there is one.
    pub fn data(&self) -> Option<&Path> {
        match self {
            Self::Dir { data, .. } => Some(data),
            Self::Database { .. } => None,
        }
    }
}

/// Without the key.
impl fmt::Display for PeopleLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir { data, .. } => data.display().fmt(f),
            Self::Database { url, .. } => write!(f, "PostgreSQL at {url}"),
        }
    }
}

impl fmt::Debug for PeopleLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeopleLocation({self})")
    }
}

impl WindowStore {
    /// Trusts only the certificates in `authority`, a PEM file.
    fn trusting(self, authority: &Path) -> Result<Self, SettingError> {
        let error = |why: String| SettingError::new("windows_ca", why);
        let Self::Redis(RedisServer { shown, url }) = self else {
            return Err(error("applies to Redis; set `windows` to a URL such as rediss://HOST".to_owned()));
        };
        if !url.is_tls() {
            let why = format!("applies to TLS, which {shown} does not use; its scheme must be rediss");
            return Err(error(why));
        }
        let unusable =
            |why: &dyn std::error::Error| error(format!("cannot use {}: {why}", authority.display()));
        let pem = std::fs::read(authority).map_err(|why| unusable(&why))?;
        pem_roots(&pem).map_err(|why| unusable(&why))?;
        Ok(Self::Redis(RedisServer { shown, url: url.trusting(pem) }))
    }
}

impl RedisServer {
    fn parse(shown: ServerUrl) -> Result<Self, SettingError> {
        let url = shown.reveal().parse();
        let url = url.map_err(|error: RedisUrlError| unusable(&shown, error).of_setting("windows"))?;
        Ok(Self { shown, url })
    }

    /// Creates the error for a URL that cannot be used.
    pub fn unusable(&self, why: impl std::error::Error) -> Failure {
        unusable(&self.shown, why)
    }
}

fn unusable(url: &ServerUrl, why: impl std::error::Error) -> Failure {
    Failure::new(format!("cannot use {url} as the rate-limit store: {why}"))
        .advise("set `windows` to memory or to a URL such as redis://HOST")
}

impl fmt::Display for WindowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(server) => write!(f, "Redis at {}", server.shown),
        }
    }
}
