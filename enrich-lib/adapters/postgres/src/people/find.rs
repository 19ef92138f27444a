//! Lookups of people: the lookups of all connections of a node share one statement, which also reads the
//! opt-outs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, OptOuts};
use enrich_store::batch::{BatchReceiver, BatchSender, Job, Replies, batch_queue};
use enrich_store::{EmailHash, EmailHasher, StoreError};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::Type;

use super::key::{CHECK_KEY, checked, fingerprint};
use crate::column::parsed;
use crate::connect::pool::{Parameter, Pool, Sizes};
use crate::connect::schema;
use crate::connect::server::Server;
use crate::error::PostgresError;
use crate::health::Health;

/// The timeout for finding a person, including the time in the queue.
const FIND_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before a statement is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Returns a row for each person: the trusted profile, and whether the person opted out. A standby may lack
/// the last opt-outs. The database can be replaced by one with another key while a node runs: then no opt-out
/// would apply. Without a key, there are no opt-outs.
const FIND: &str = "/* enrich: find people */
    SELECT is_read_only, trusted_profile, has_opted_out, NOT EXISTS (SELECT FROM people_key WHERE fingerprint <> $4)
    FROM find_people($1, $2, $3)";

/// The people and opt-outs of a database, for one of several nodes. It keeps none of them in memory, so that
/// a change applies to the next lookup on each node.
#[derive(derive_more::Debug)]
#[debug("People {{ .. }}")]
pub struct People {
    hasher: EmailHasher,
    queue: BatchSender<Hashes, FindResult>,
    health: Arc<Health>,
    task: AbortHandle,
}

/// The hashes of one email.
struct Hashes {
    person: EmailHash,
    opt_out: EmailHash,
}

/// Hashes that no email has: the statement returns a row for each.
const NO_ONE: Hashes = Hashes { person: [0; 16], opt_out: [0; 16] };

/// The rows of the database for an email.
struct Found {
    profile: Option<ProfileUrl>,
    has_opted_out: bool,
}

type FindResult = Result<Found, PostgresError>;

impl People {
    /// The name of the database as a [source](Answer::source) of profiles.
    pub const NAME: &str = "people";

    /// Connects, checks that the database has people under the key of `hasher`, and starts the task of the
    /// node. `limit` is the timeout of one statement. Lookups do not return a match below `confidence_min` (0
    /// to 1).
    ///
    /// Errors: [`PostgresError::PeopleKey`], and those of the schema's version.
    pub async fn open(
        server: Server,
        limit: Duration,
        hasher: EmailHasher,
        confidence_min: f64,
    ) -> Result<Self, PostgresError> {
        let pool = Pool::new(server, 1, limit, Sizes::default());
        schema::check(&pool).await?;
        let rows = pool.query_idempotent(CHECK_KEY, &[(&fingerprint(&hasher), Type::BYTEA)]).await?;
        checked(rows.first().is_some_and(|row| row.get(0)))?;
        let (queue, receiver) = batch_queue();
        let health = Arc::<Health>::default();
        let finder = Finder { pool, hasher: hasher.clone(), confidence_min, health: health.clone() };
        let task = tokio::spawn(finder.run(receiver)).abort_handle();
        Ok(Self { hasher, queue, health, task })
    }

    /// Fails if people and opt-outs could not be read for seconds. Sends no statement.
    pub fn check(&self) -> Result<(), PostgresError> {
        self.health.check()
    }

    async fn get(&self, email: &Email) -> FindResult {
        let hashes = Hashes { person: self.hasher.hash(email), opt_out: self.hasher.opt_out_hash(email) };
        let found = timeout(FIND_TIMEOUT, self.queue.send(hashes)).await;
        let found =
            found.map_err(|_| PostgresError::PeopleNotRead(format!("no reply within {FIND_TIMEOUT:?}")))?;
        found.unwrap_or(Err(StoreError::Stopped.into()))
    }
}

#[async_trait]
impl Resolver for People {
    /// Does not find people who opted out.
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let Found { profile, has_opted_out } = self.get(&query.email).await?;
        Ok(Answer::from(profile.filter(|_| !has_opted_out)).from_source(Self::NAME))
    }
}

#[async_trait]
impl OptOuts for People {
    async fn contains(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.get(email).await?.has_opted_out)
    }
}

/// The task that executes lookups, one batch at a time.
struct Finder {
    pool: Pool,
    hasher: EmailHasher,
    confidence_min: f64,
    health: Arc<Health>,
}

impl Finder {
    async fn run(self, mut queue: BatchReceiver<Hashes, FindResult>) {
        let mut jobs: Vec<Job<Hashes, FindResult>> = Vec::new();
        loop {
            match timeout(Health::INTERVAL, queue.take(&mut jobs, self.pool.sizes.batch)).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    self.health.record(&self.find(std::iter::once(&NO_ONE)).await);
                    continue;
                }
            }
            queue.yield_and_take_queued(&mut jobs, self.pool.sizes.batch);
            jobs.retain(|job| !job.is_abandoned());
            if jobs.is_empty() {
                continue;
            }
            let found = self.find_in_time(&jobs).await;
            let mut replies = Replies::default();
            match found {
                Ok(found) => jobs.drain(..).zip(found).for_each(|(job, found)| replies.add(job, found)),
                Err(error) => {
                    let error = error.to_string();
                    jobs.drain(..)
                        .for_each(|job| replies.add(job, Err(PostgresError::PeopleNotRead(error.clone()))));
                }
            }
        }
    }

    /// Repeats the statement while PostgreSQL cannot be reached, because a vendor may already have answered
    /// these lookups.
    async fn find_in_time(&self, jobs: &[Job<Hashes, FindResult>]) -> Result<Vec<FindResult>, PostgresError> {
        let started_at = Instant::now();
        loop {
            let found = self.find(jobs.iter().map(|job| &job.item)).await;
            self.health.record(&found);
            match found {
                Err(error) if !error.is_rejection() && started_at.elapsed() < FIND_TIMEOUT => {
                    sleep(RETRY_PAUSE).await;
                }
                found => return found,
            }
        }
    }

    async fn find<'a>(
        &self,
        batch: impl Iterator<Item = &'a Hashes>,
    ) -> Result<Vec<FindResult>, PostgresError> {
        let (people, opt_outs): (Vec<_>, Vec<_>) =
            batch.map(|hashes| (&hashes.person[..], &hashes.opt_out[..])).unzip();
        let values: [(Parameter<'_>, Type); 4] = [
            (&people, Type::BYTEA_ARRAY),
            (&opt_outs, Type::BYTEA_ARRAY),
            (&self.confidence_min, Type::FLOAT8),
            (&fingerprint(&self.hasher), Type::BYTEA),
        ];
        let rows = self.pool.read(FIND, &values).await?;
        checked(rows.iter().all(|row| row.get(3)))?;
        let found = rows.iter().map(|row| {
            let name = row.get::<_, Option<&str>>(1);
            let profile = parsed("person.profile", name.map(ProfileUrl::from_name).transpose())?;
            Ok(Found { profile, has_opted_out: row.get(2) })
        });
        Ok(found.collect())
    }
}

impl Drop for People {
    fn drop(&mut self) {
        self.task.abort();
    }
}
