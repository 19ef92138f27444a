//! Opens the stores of a node: people, accounts and rate-limit windows.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_console::OpenAccounts;
use enrich_metrics::VendorMetrics;
use enrich_node::sources::PeopleSource;
use enrich_node::{Database, Node, Stores};
use enrich_sqlite::{DataDir, People};
use enrich_store::{Accounts, StoreError};

use super::machine::SystemMachine;
use super::{opt_outs, rate_limits};
use crate::accounts;
use crate::failure::Failure;
use crate::settings::Settings;

/// Opens a node.
pub async fn open(settings: &Settings, vendors: Arc<VendorMetrics>) -> Result<Node, Failure> {
    let (data, locations) = (&settings.config.data, &settings.locations);
    let windows = rate_limits::open_checked(&locations.windows).await?;
    let dir = DataDir::open(data).map_err(|error| match &locations.database {
        Some(_) => no_people(data),
        None => error.into(),
    })?;
    let shared = match &locations.database {
        Some(url) => Some(opt_outs::Connection::open(url, data).await?),
        None => None,
    };
    let directory = Arc::new(People::open(&dir, settings.config.people.confidence_min, rand::random())?);
    let shared = match shared {
        Some(connection) => Some(Arc::new(connection.read(&directory).await?)),
        None => None,
    };
    let database = match &locations.database {
        Some(url) => Database::Server(Box::new(accounts::server(url)?), enrich_postgres::Config::default()),
        None => Database::Dir(dir),
    };
    let stores = Stores { people: PeopleSource { directory, shared }, windows, database };
    let opened = Node::open(Arc::new(SystemMachine), stores, &settings.sources, vendors).await;
    opened.map_err(|error| match &locations.database {
        Some(url) => accounts::at(url, error),
        None => error.into(),
    })
}

/// Opens the accounts of a node again, on another thread.
pub fn opener(settings: &Settings) -> Result<Box<dyn OpenAccounts>, Failure> {
    Ok(match &settings.locations.database {
        Some(url) => Box::new(OnServer(accounts::server(url)?)),
        None => Box::new(InDir(DataDir::open(&settings.config.data)?)),
    })
}

/// Accounts in a data directory.
struct InDir(DataDir);

#[async_trait]
impl OpenAccounts for InDir {
    async fn open(&self) -> Result<Accounts, StoreError> {
        Ok(enrich_sqlite::accounts(&self.0)?)
    }
}

/// Accounts on a PostgreSQL server.
struct OnServer(enrich_postgres::Server);

#[async_trait]
impl OpenAccounts for OnServer {
    async fn open(&self) -> Result<Accounts, StoreError> {
        Ok(enrich_postgres::accounts(&self.0).await?)
    }
}

/// Creates the error for a node with shared accounts and no people directory.
fn no_people(data: &Path) -> Failure {
    Failure::new(format!("there is no people directory in {}", data.display())).advise(
        "create one with `enrich people import FILE`, or choose another directory with --data or ENRICH_DATA; each node has its own",
    )
}
