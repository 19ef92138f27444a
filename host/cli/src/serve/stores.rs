//! Opens the stores of a node: people, accounts and rate-limit windows.

use std::sync::Arc;

use enrich_metrics::VendorMetrics;
use enrich_node::{Database, Node, SharedDatabase, Stores};
use enrich_sqlite::DataDir;
use enrich_store::EmailHasher;

use super::machine::SystemMachine;
use super::rate_limits;
use crate::failure::Failure;
use crate::settings::{PeopleLocation, Settings};
use crate::{accounts, directory};

/// Opens a node.
pub async fn open(settings: &Settings, vendors: Arc<VendorMetrics>) -> Result<Node, Failure> {
    let (locations, confidence_min) = (&settings.locations, settings.config.people.confidence_min);
    let windows = rate_limits::open_checked(&locations.windows).await?;
    let database = match &locations.people {
        PeopleLocation::Dir { data, key } => {
            let dir = DataDir::open(data)?;
            let people = Arc::new(directory::people(&dir, confidence_min, *key)?);
            Database::Dir(dir, people)
        }
        PeopleLocation::Database { url, key } => Database::Server(Box::new(SharedDatabase {
            server: accounts::server(url)?,
            config: enrich_postgres::Config::default(),
            hasher: EmailHasher::new(*key),
            confidence_min,
        })),
    };
    let stores = Stores { windows, database };
    let opened = Node::open(Arc::new(SystemMachine), stores, &settings.sources, vendors).await;
    opened.map_err(|error| match &locations.database {
        Some(url) => accounts::at(url, error),
        None => error.into(),
    })
}
