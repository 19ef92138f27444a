//! The service with in-memory stores, to measure the cost of a lookup without a disk.

use std::error::Error;
use std::sync::Arc;

use enrich::log::{self, Log, LogFormat};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::ProfileUrl;
use enrich_lib::window::{Quota, Workspace};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::dataset::{self, Keys};

/// Initial credits, so many that no measurement uses them up.
pub const CREDITS: u64 = 1_000_000_000_000;

/// Creates a service, and returns it with its accounts, which the caller must advance.
pub fn service(keys: &Keys, people: usize) -> Result<(Service, Arc<AccountTable>), Box<dyn Error>> {
    let (known, accounts, directory) = (KeyTable::default(), AccountTable::default(), Directory::default());
    let day_seconds = Quota::WINDOW_SECONDS_MAX;
    for (name, limit, key) in [("bench", u32::MAX, &keys.main), ("limited", 1, &keys.limited)] {
        let workspace = Workspace::new(name.parse()?, Quota::new(limit, day_seconds)?);
        accounts.grant(&workspace.id, CREDITS)?;
        known.insert(key.digest(), workspace);
    }
    for person in 0..people {
        let profile = ProfileUrl::from_name(&dataset::profile(person))?;
        directory.insert(&Email::parse(&dataset::email(person))?, profile);
    }
    let accounts = Arc::new(accounts);
    let windows = Arc::new(WindowTable::default());
    let service = Service::new(Arc::new(known), windows, accounts.clone(), Arc::new(directory));
    Ok((service, accounts))
}

/// Starts the log of a server, with the default level of `enrich serve`.
pub fn start_log() -> Log {
    log::start_with(LogFormat::Text, false, Targets::new().with_default(LevelFilter::INFO))
}
