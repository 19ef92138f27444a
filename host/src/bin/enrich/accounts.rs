//! The accounts that the commands work on, and where they are: in a data directory, or on a PostgreSQL server.

use std::path::PathBuf;

use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::records::{Audit, KeyRow, WorkspaceRow};
use enrich_lib::window::Quota;
use enrich_sqlite::{Admin, DataDir, StoreError};

use crate::failure::Failure;

/// What an operator does with accounts, wherever they are.
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
    /// Files a new key and tells its id.
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

/// Where the accounts are.
#[derive(Debug)]
pub enum Place {
    Dir(PathBuf),
    Server(ServerUrl),
}

impl Place {
    /// Accounts that exist.
    pub fn open(self) -> Result<Box<dyn Accounts>, Failure> {
        match self {
            Self::Dir(data) => Ok(Box::new(Admin::open(&DataDir::open(data)?)?)),
        }
    }

    /// The same, but a data directory is made if it is missing.
    pub fn create(self) -> Result<Box<dyn Accounts>, Failure> {
        match self {
            Self::Dir(data) => Ok(Box::new(Admin::open(&DataDir::create(data)?)?)),
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
        told(Self::create_workspace(self, id, quota, credits, now))
    }

    fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, Failure> {
        told(Self::workspaces(self))
    }

    fn grant(&mut self, workspace: &WorkspaceId, credits: u64, now: Timestamp) -> Result<Balance, Failure> {
        told(Self::grant(self, workspace, credits, now))
    }

    fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, Failure> {
        told(Self::balance(self, workspace))
    }

    fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, Failure> {
        told(Self::create_key(self, workspace, label, key, now))
    }

    fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, Failure> {
        told(Self::keys(self, workspace))
    }

    fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), Failure> {
        told(Self::revoke_key(self, id, now))
    }

    fn audit(&mut self) -> Result<Audit, Failure> {
        told(Self::audit(self))
    }
}

fn told<T>(result: Result<T, StoreError>) -> Result<T, Failure> {
    Ok(result?)
}
