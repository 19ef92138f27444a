//! The people directory of a data directory and, with a database, the opt-outs that all nodes share.
//! Operations block the thread.

use std::path::{Path, PathBuf};

use enrich_host::SystemArrivals;
use enrich_lib::email::Email;
use enrich_postgres::{OptOutAdmin, PostgresError};
use enrich_sqlite::{DataDir, People, SqliteError, Stats};
use enrich_store::{EmailHasher, OptOut};
use tokio::runtime::Runtime;

use crate::accounts::{self, at};
use crate::failure::Failure;
use crate::runtime;
use crate::url::ServerUrl;

pub struct Directory {
    pub people: People,
    shared: Option<Shared>,
}

/// The opt-outs in a database.
struct Shared {
    runtime: Runtime,
    admin: OptOutAdmin,
    url: ServerUrl,
}

impl Directory {
    /// Opens an existing directory. With a database, a copied `people.key` is sufficient.
    pub fn open(data: PathBuf, database: Option<&ServerUrl>) -> Result<Self, Failure> {
        let Some(url) = database else { return Self::on(&DataDir::open(data)?) };
        let has_key = DataDir::has_people_key(&data);
        Self::with_shared(data, url, if has_key { DataDir::create } else { DataDir::open })
    }

    /// Opens a directory, and creates it if it is missing. The opt-outs in the database apply to imports from
    /// then on.
    pub fn create(data: PathBuf, database: Option<&ServerUrl>) -> Result<Self, Failure> {
        let Some(url) = database else { return Self::on(&DataDir::create(data)?) };
        let mut directory = Self::with_shared(data, url, DataDir::create)?;
        directory.exchange_opt_outs()?;
        Ok(directory)
    }

    fn on(dir: &DataDir) -> Result<Self, Failure> {
        Ok(Self { people: people(dir)?, shared: None })
    }

    fn with_shared(
        data: PathBuf,
        url: &ServerUrl,
        open: impl FnOnce(PathBuf) -> Result<DataDir, SqliteError>,
    ) -> Result<Self, Failure> {
        let mut shared = Shared::connect(url)?;
        if shared.run(async |admin| admin.has_people_key().await)? {
            check_has_key(&data)?;
        }
        let people = people(&open(data)?)?;
        shared.run(async |admin| admin.check_people_key(people.hasher()).await)?;
        Ok(Self { people, shared: Some(shared) })
    }

    /// Adds the opt-outs of this directory to the database and those of the database to this directory.
    fn exchange_opt_outs(&mut self) -> Result<(), Failure> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let (hasher, own) = (self.people.hasher(), self.people.opt_outs()?);
        let changes = shared.run(async |admin| {
            add_opt_outs(admin, hasher, own).await?;
            admin.opt_outs(hasher).await
        })?;
        Ok(self.people.merge_opt_outs(&changes)?)
    }

    /// Opts people out, on all nodes. Returns how many of them had not opted out before.
    pub fn opt_out(&mut self, emails: &[Email]) -> Result<u64, Failure> {
        match &mut self.shared {
            Some(shared) => shared.run(async |admin| admin.suppress(self.people.hasher(), emails).await),
            None => Ok(self.people.opt_out(emails, SystemArrivals::now())?),
        }
    }

    /// Withdraws opt-outs, on all nodes. Returns how many of the people had opted out.
    pub fn withdraw(&mut self, emails: &[Email]) -> Result<u64, Failure> {
        match &mut self.shared {
            Some(shared) => shared.run(async |admin| admin.unsuppress(self.people.hasher(), emails).await),
            None => Ok(self.people.withdraw(emails, SystemArrivals::now())?),
        }
    }

    /// Returns the opt-out of a person, unless it was withdrawn.
    pub fn opt_out_of(&mut self, email: &Email) -> Result<Option<OptOut>, Failure> {
        let change = match &mut self.shared {
            Some(shared) => shared.run(async |admin| admin.opt_out(self.people.hasher(), email).await)?,
            None => self.people.opt_out_of(email)?,
        };
        Ok(change.filter(|change| !change.is_withdrawn))
    }

    pub fn stats(&mut self) -> Result<Stats, Failure> {
        let stats = self.people.stats()?;
        match &mut self.shared {
            Some(shared) => {
                Ok(Stats { opt_outs: shared.run(async |admin| admin.count_opt_outs().await)?, ..stats })
            }
            None => Ok(stats),
        }
    }
}

impl Shared {
    fn connect(url: &ServerUrl) -> Result<Self, Failure> {
        let (runtime, server) = (runtime::single_threaded()?, accounts::server(url)?);
        let admin = runtime.block_on(OptOutAdmin::open(&server)).map_err(|error| at(url, error))?;
        Ok(Self { runtime, admin, url: url.clone() })
    }

    fn run<T>(
        &mut self,
        operation: impl AsyncFnOnce(&mut OptOutAdmin) -> Result<T, PostgresError>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(operation(&mut self.admin)).map_err(|error| at(&self.url, error))
    }
}

/// Checks that the data directory has a key, because that of other nodes exists. Otherwise, it would receive
/// a new one, which matches none of their hashes.
pub fn check_has_key(data: &Path) -> Result<(), Failure> {
    if DataDir::has_people_key(data) {
        return Ok(());
    }
    let failure = Failure::new(format!("there is no people.key in {}", data.display()));
    Err(failure.advise("copy it from another node; all nodes need the same key"))
}

/// Adds the opt-outs of a directory to a database, whose key is checked first. Returns their number.
/// Withdrawals are not added: one applies to all nodes only if it is made in the database.
pub async fn add_opt_outs(
    admin: &mut OptOutAdmin,
    hasher: &EmailHasher,
    mut own: Vec<OptOut>,
) -> Result<u64, PostgresError> {
    own.retain(|change| !change.is_withdrawn);
    admin.check_people_key(hasher).await?;
    admin.merge_opt_outs(hasher, &own).await?;
    Ok(own.len() as u64)
}

fn people(dir: &DataDir) -> Result<People, Failure> {
    Ok(People::open(dir, People::CONFIDENCE_MIN, rand::random())?)
}
