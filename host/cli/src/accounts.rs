//! Access to accounts (workspaces, keys and credits) in a data directory or on a PostgreSQL server.

use std::path::PathBuf;

use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::records::{Audit, KeyRow, WorkspaceRow};
use enrich_lib::window::Quota;
use enrich_postgres::{Database, Server};
use enrich_sqlite::{Admin, DataDir, StoreError};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::MigrateArgs;
use crate::failure::Failure;
use crate::output;
use crate::url::ServerUrl;

/// Administrative operations on accounts, independent of their location.
pub trait Accounts {
    fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), Failure>;
    fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, Failure>;
    fn grant(&mut self, workspace: &WorkspaceId, credits: u64, now: Timestamp) -> Result<Balance, Failure>;
    fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, Failure>;
    /// Stores a new key and returns its id.
    fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, Failure>;
    fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, Failure>;
    fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), Failure>;
    fn audit(&mut self) -> Result<Audit, Failure>;
}

/// The location of the accounts.
#[derive(Debug)]
pub enum StoreLocation {
    Dir(PathBuf),
    Server(ServerUrl),
}

impl StoreLocation {
    /// Opens existing accounts. Fails if the data directory is missing.
    pub fn open(self) -> Result<Box<dyn Accounts>, Failure> {
        match self {
            Self::Dir(data) => Ok(Box::new(Admin::open(&DataDir::open(data)?)?)),
            Self::Server(url) => Ok(Box::new(Remote::open(&url)?)),
        }
    }

    /// Opens the accounts, and creates the data directory if it is missing.
    pub fn create(self) -> Result<Box<dyn Accounts>, Failure> {
        match self {
            Self::Dir(data) => Ok(Box::new(Admin::open(&DataDir::create(data)?)?)),
            Self::Server(url) => Ok(Box::new(Remote::open(&url)?)),
        }
    }
}

impl Accounts for Admin {
    fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), Failure> {
        convert(Self::create_workspace(self, id, quota, credits, now))
    }

    fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, Failure> {
        convert(Self::workspaces(self))
    }

    fn grant(&mut self, workspace: &WorkspaceId, credits: u64, now: Timestamp) -> Result<Balance, Failure> {
        convert(Self::grant(self, workspace, credits, now))
    }

    fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, Failure> {
        convert(Self::balance(self, workspace))
    }

    fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, Failure> {
        convert(Self::create_key(self, workspace, label, key, now))
    }

    fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, Failure> {
        convert(Self::keys(self, workspace))
    }

    fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), Failure> {
        convert(Self::revoke_key(self, id, now))
    }

    fn audit(&mut self) -> Result<Audit, Failure> {
        convert(Self::audit(self))
    }
}

fn convert<T>(result: Result<T, StoreError>) -> Result<T, Failure> {
    Ok(result?)
}

/// The accounts on a PostgreSQL server. Methods block the thread until the server responds.
struct Remote {
    runtime: Runtime,
    admin: enrich_postgres::Admin,
}

impl Remote {
    fn open(url: &ServerUrl) -> Result<Self, Failure> {
        let (runtime, server) = (runtime()?, server(url)?);
        let admin = runtime.block_on(enrich_postgres::Admin::open(&server));
        Ok(Self { admin: admin.map_err(|error| at(url, error))?, runtime })
    }
}

impl Accounts for Remote {
    fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), Failure> {
        Ok(self.runtime.block_on(self.admin.create_workspace(id, quota, credits, now))?)
    }

    fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, Failure> {
        Ok(self.runtime.block_on(self.admin.workspaces())?)
    }

    fn grant(&mut self, workspace: &WorkspaceId, credits: u64, now: Timestamp) -> Result<Balance, Failure> {
        Ok(self.runtime.block_on(self.admin.grant(workspace, credits, now))?)
    }

    fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, Failure> {
        Ok(self.runtime.block_on(self.admin.balance(workspace))?)
    }

    fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, Failure> {
        Ok(self.runtime.block_on(self.admin.create_key(workspace, label, key, now))?)
    }

    fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, Failure> {
        Ok(self.runtime.block_on(self.admin.keys(workspace))?)
    }

    fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), Failure> {
        Ok(self.runtime.block_on(self.admin.revoke_key(id, now))?)
    }

    fn audit(&mut self) -> Result<Audit, Failure> {
        Ok(self.runtime.block_on(self.admin.audit())?)
    }
}

/// `enrich migrate`
pub fn migrate(args: &MigrateArgs) -> Result<(), Failure> {
    let url = &args.database;
    let applied =
        runtime()?.block_on(Database::new(server(url)?).migrate()).map_err(|error| at(url, error))?;
    let version = Database::VERSION;
    let before = version - applied;
    if args.format.json {
        return output::json(&json!({ "from": before, "version": version }));
    }
    output::line(match before {
        0 => format!("{url}: created the tables of version {version}"),
        before if before == version => format!("{url}: the tables already have version {version}"),
        before => format!("{url}: upgraded the tables from version {before} to {version}"),
    })
}

/// Creates a single-threaded Tokio runtime.
pub fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::new(format!("cannot start the runtime: {e}")))
}

pub fn server(url: &ServerUrl) -> Result<Server, Failure> {
    url.check_is_postgres()?;
    Ok(url.reveal().parse()?)
}

/// Converts an error of the server at `url`, and adds the URL to the message.
pub fn at(url: &ServerUrl, error: enrich_postgres::StoreError) -> Failure {
    let failure = Failure::from(error);
    Failure { what: format!("{url}: {}", failure.what), ..failure }
}
