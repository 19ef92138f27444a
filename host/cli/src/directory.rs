//! People and opt-outs in a data directory or on a PostgreSQL server. Operations block the thread.

use crate::files::Person;
use enrich_host::SystemArrivals;
use enrich_lib::email::Email;
use enrich_postgres::{PeopleAdmin, PostgresError};
use enrich_sqlite::{DataDir, People, SqliteError};
use enrich_store::{EmailHasher, Imported, OptOut, PeopleStats, RemovalLimit};
use tokio::runtime::Runtime;

use crate::accounts::{self, at};
use crate::failure::Failure;
use crate::runtime;
use crate::settings::PeopleLocation;

pub struct Directory {
    runtime: Runtime,
    location: PeopleLocation,
    /// The connection to the database, if there is one.
    admin: Option<PeopleAdmin>,
}

/// An import in progress.
pub enum Import<'a> {
    Dir(enrich_sqlite::Import<'a>),
    Database(enrich_postgres::Import<'a>),
}

impl Directory {
    /// Opens a location whose data directory exists. Fails if its accounts were moved, because the store that
    /// received them may have later opt-outs.
    pub fn open(location: PeopleLocation) -> Result<Self, Failure> {
        if let PeopleLocation::Dir { data, .. } = &location {
            DataDir::open(data)?.check_not_moved()?;
        }
        Self::create(location)
    }

    /// Opens a location. The first import creates a missing data directory.
    pub fn create(location: PeopleLocation) -> Result<Self, Failure> {
        let runtime = runtime::single_threaded()?;
        let admin = match &location {
            PeopleLocation::Dir { .. } => None,
            PeopleLocation::Database { url, key, .. } => {
                let server = accounts::server(url)?;
                let opened = PeopleAdmin::open(&server, EmailHasher::new(*key));
                Some(runtime.block_on(opened).map_err(|error| at(url, error))?)
            }
        };
        Ok(Self { runtime, location, admin })
    }

    /// Opts people out. Returns how many of them had not opted out before.
    pub fn opt_out(&mut self, emails: &[Email]) -> Result<u64, Failure> {
        match self.on_server(async |admin| admin.opt_out(emails).await)? {
            Some(changed) => Ok(changed),
            None => Ok(self.people(People::CONFIDENCE_MIN)?.opt_out(emails, SystemArrivals::now())?),
        }
    }

    /// Withdraws opt-outs. Returns how many of the people had opted out.
    pub fn withdraw(&mut self, emails: &[Email]) -> Result<u64, Failure> {
        match self.on_server(async |admin| admin.withdraw(emails).await)? {
            Some(changed) => Ok(changed),
            None => Ok(self.people(People::CONFIDENCE_MIN)?.withdraw(emails, SystemArrivals::now())?),
        }
    }

    /// Returns the opt-out of each person in the order of the emails, unless it was withdrawn.
    pub fn opt_outs_of(&mut self, emails: &[Email]) -> Result<Vec<Option<OptOut>>, Failure> {
        let on_server = async |admin: &mut PeopleAdmin| {
            let mut changes = Vec::new();
            for email in emails {
                changes.push(admin.opt_out_of(email).await?);
            }
            Ok(changes)
        };
        let changes = match self.on_server(on_server)? {
            Some(changes) => changes,
            None if !self.has_people() => vec![None; emails.len()],
            None => self.people(People::CONFIDENCE_MIN)?.opt_outs_of(emails)?,
        };
        Ok(changes.into_iter().map(|change| change.filter(|change| !change.is_withdrawn)).collect())
    }

    /// Counts people and opt-outs. A match below `confidence_min` is not trusted.
    pub fn stats(&mut self, confidence_min: f64) -> Result<PeopleStats, Failure> {
        match self.on_server(async |admin| admin.stats(confidence_min).await)? {
            None if !self.has_people() => Ok(PeopleStats { people: 0, untrusted: 0, opt_outs: 0 }),
            Some(stats) => Ok(stats),
            None => Ok(self.people(confidence_min)?.stats()?),
        }
    }

    /// Imports the rows that `fill` adds. It returns whether they are complete, so that all other people can be
    /// removed up to the limit `removal`, if `may_remove` confirms it when the rows are written.
    pub fn import(
        &mut self,
        removal: Option<RemovalLimit>,
        fill: impl AsyncFnOnce(&mut Import<'_>) -> Result<bool, Failure>,
        may_remove: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Imported, Failure> {
        let Some(admin) = &mut self.admin else {
            let people = self.people(People::CONFIDENCE_MIN)?;
            let import = removal.map_or_else(|| people.import(), |limit| people.replace(limit))?;
            let mut import = Import::Dir(import);
            let imported = self.runtime.block_on(async {
                let is_complete = fill(&mut import).await?;
                import.finish(removal.filter(|_| is_complete), may_remove).await
            });
            let advice =
                "earlier rows may be imported; run the same command again when the cause is repaired";
            return imported.map_err(|failure: Failure| failure.or_advise(advice));
        };
        let imported = self.runtime.block_on(async {
            let mut import = Import::Database(admin.import().await?);
            let is_complete = fill(&mut import).await.map_err(|failure| {
                failure
                    .or_advise("nothing was imported; run the same command again when the cause is repaired")
            })?;
            // The commit can have succeeded without its reply.
            import.finish(removal.filter(|_| is_complete), may_remove).await.map_err(|failure| {
                failure
                    .or_advise("run the same command again, which does not change people that are imported")
            })
        });
        imported.map_err(|failure| self.located(failure))
    }

    /// Returns whether the data directory has people, or what is left of them. Otherwise, reading creates no file,
    /// which would belong to the user of the command instead of that of the server.
    fn has_people(&self) -> bool {
        let data = self.location.data().expect("it was checked that there is a directory");
        let is_missing = |name| matches!(data.join(name).try_exists(), Ok(false));
        !["people.db", "people.db-wal", "people.key"].into_iter().all(is_missing)
    }

    /// Opens the data directory, and creates it if it is missing.
    fn people(&self, confidence_min: f64) -> Result<People, Failure> {
        let data = self.location.data().expect("it was checked that there is a directory");
        Ok(people(&DataDir::create(data)?, confidence_min, self.location.key())?)
    }

    /// Runs an operation in the database, if there is one.
    fn on_server<T>(
        &mut self,
        operation: impl AsyncFnOnce(&mut PeopleAdmin) -> Result<T, PostgresError>,
    ) -> Result<Option<T>, Failure> {
        let Some(admin) = &mut self.admin else { return Ok(None) };
        let done = self.runtime.block_on(operation(admin));
        done.map(Some).map_err(|error| self.located(error.into()))
    }

    fn located(&self, failure: Failure) -> Failure {
        match &self.location {
            PeopleLocation::Dir { .. } => failure,
            PeopleLocation::Database { url, .. } => at(url, failure),
        }
    }
}

impl Import<'_> {
    pub async fn add(&mut self, person: &Person) -> Result<(), Failure> {
        let Person { email, profile, confidence } = person;
        match self {
            Self::Dir(import) => Ok(import.add(email, profile, *confidence)?),
            Self::Database(import) => Ok(import.add(email, profile, *confidence).await?),
        }
    }

    async fn finish(
        self,
        removal: Option<RemovalLimit>,
        may_remove: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Imported, Failure> {
        Ok(match self {
            Self::Dir(import) if removal.is_some() => import.finish_if(may_remove)?,
            Self::Dir(import) => import.stop()?,
            Self::Database(import) => import.finish_if(removal, may_remove).await?,
        })
    }
}

/// Opens the people of a data directory, under `key` if there is one.
pub fn people(dir: &DataDir, confidence_min: f64, key: Option<[u8; 16]>) -> Result<People, SqliteError> {
    match key {
        Some(key) => People::open_under(dir, confidence_min, key),
        None => People::open(dir, confidence_min, rand::random()),
    }
}
