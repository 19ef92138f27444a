//! Access to accounts (workspaces, keys, credits and users) in a data directory or on a PostgreSQL server.

use std::fmt;
use std::path::PathBuf;

use enrich_host::SystemArrivals;
use enrich_postgres::{PostgresError, Server};
use enrich_sqlite::{DataDir, SqliteError};
use enrich_store::StoreError;
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::url::ServerUrl;
use crate::{output, runtime};

/// The location of the accounts.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    Dir(PathBuf),
    Server(ServerUrl),
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(data) => data.display().fmt(f),
            Self::Server(url) => url.fmt(f),
        }
    }
}

impl StoreLocation {
    /// Opens existing accounts. Fails if the data directory is missing.
    pub fn open(self) -> Result<Accounts, Failure> {
        match self {
            Self::Dir(data) => Accounts::in_dir(&open_dir(data)?),
            Self::Server(url) => Accounts::on_server(&url),
        }
    }

    /// Opens existing accounts to read them. Changes no file of a data directory.
    pub fn open_to_read(self) -> Result<Accounts, Failure> {
        match self {
            Self::Dir(data) => {
                let admin = enrich_sqlite::accounts_to_read(&open_dir(data)?)?;
                Ok(Accounts { runtime: runtime::single_threaded()?, admin })
            }
            Self::Server(url) => Accounts::on_server(&url),
        }
    }

    /// Opens the accounts, and creates the data directory if it is missing.
    pub fn create(self) -> Result<Accounts, Failure> {
        match self {
            Self::Dir(data) => Accounts::in_dir(&DataDir::create(data)?),
            Self::Server(url) => Accounts::on_server(&url),
        }
    }
}

/// Opens a data directory. Prints a remark if its accounts were moved: they can be read, but not changed.
fn open_dir(data: PathBuf) -> Result<DataDir, Failure> {
    let dir = DataDir::open(data)?;
    if let Err(moved @ SqliteError::Moved { .. }) = dir.check_not_moved() {
        output::remark(format!("{moved}; this directory has their state from before"));
    }
    Ok(dir)
}

/// Administrative operations on accounts, independent of their location. They block the thread.
pub struct Accounts {
    runtime: Runtime,
    admin: enrich_store::Accounts,
}

impl Accounts {
    fn in_dir(dir: &DataDir) -> Result<Self, Failure> {
        Ok(Self { runtime: runtime::single_threaded()?, admin: enrich_sqlite::accounts(dir)? })
    }

    /// Prints a warning if the clock of this machine differs from that of the server, because commands store its time.
    fn on_server(url: &ServerUrl) -> Result<Self, Failure> {
        let (runtime, server) = (runtime::single_threaded()?, server(url)?);
        let admin = runtime.block_on(enrich_postgres::accounts(&server));
        let mut admin = admin.map_err(|error| at(url, error))?;
        let limit = enrich_store::Accounts::CLOCK_DIFFERENCE_MAX;
        let checked = runtime.block_on(admin.check_clock(SystemArrivals::now, limit));
        if let Err(error @ StoreError::WrongClock { .. }) = checked {
            output::remark(format!("warning: {error}"));
        }
        Ok(Self { admin, runtime })
    }

    /// Runs operations.
    pub fn run<T, E: Into<Failure>>(
        &mut self,
        operations: impl AsyncFnOnce(&mut enrich_store::Accounts) -> Result<T, E>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(operations(&mut self.admin)).map_err(Into::into)
    }

    /// Makes a change. `if_made` is the advice after an error that does not exclude that the change was made.
    pub fn change<T>(
        &mut self,
        if_made: &str,
        change: impl AsyncFnOnce(&mut enrich_store::Accounts) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(change(&mut self.admin)).map_err(|error| {
            let is_sync_failure = matches!(error.backend(), Some(SqliteError::SyncFailed(_)));
            let may_be_made = is_sync_failure
                || error.backend::<PostgresError>().is_some_and(|error| !error.had_no_effect());
            let failure = Failure::from(error);
            match may_be_made {
                true => failure.advise(format!("the change may have been made; {if_made}")),
                false => failure,
            }
        })
    }
}

pub fn server(url: &ServerUrl) -> Result<Server, Failure> {
    Ok(url.reveal().parse()?)
}

/// Converts an error of the server at `url`, and adds the URL to the message.
pub fn at(url: &ServerUrl, error: impl Into<Failure>) -> Failure {
    let failure = error.into();
    Failure { what: format!("{url}: {}", failure.what), ..failure }
}
