//! Holds: one statement locks the balances of a batch's workspaces, grants what they cover, and inserts a row
//! for each hold.
//!
//! The commit is asynchronous. A crash of the server can lose a hold, whose spend then finds no row and fails
//! (500, not billed). A statement whose reply is lost leaves holds that expire. Repeating one is safe,
//! because a lookup has at most one row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Shortage};
use enrich_lib::model::WorkspaceId;
use enrich_store::StoreError;
use enrich_store::batch::{BatchReceiver, Job, Replies};
use enrich_store::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;

use super::batch::{Names, lookup_ids, receipts};
use super::release::Releases;
use super::settle::stored;
use super::sweep::Sweep;
use crate::column::{bigint, credits};
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;
use crate::health::Health;

/// How long a batch waits while all its balances are locked by other sessions. Then its lookups fail, and later ones
/// of these workspaces fail at once, until they are found unlocked. Nodes lock a balance for some milliseconds, and a
/// busy one most of the time.
const LOCKED_WAIT: Duration = Duration::from_millis(500);

/// How long a batch waits if all its workspaces have failed in this way. At most one does in each [`LOCKED_WAIT`].
const LOCKED_AGAIN_WAIT: Duration = Duration::from_millis(50);

/// The time after which a workspace that no lookup has found locked counts as unlocked.
const LOCKED_AGE_MAX: Duration = Duration::from_secs(10);

/// Grants holds. Returns what was available to each workspace, what each hold takes, which is nothing if its receipt
/// is spent, and the workspaces that are locked.
const HOLD: &str = "/* enrich: hold */
    SELECT available, amounts, totals, locked FROM hold_credits($1, $2, $3, $4, $5, $6, $7, $8)";

/// Returns the workspaces whose credits are held by lookups. By their expiry, the index finds the holds of the last
/// seconds. An index of the workspace would make each hold take a third longer.
const HOLDING: &str = "/* enrich: workspaces with holds */
    SELECT w.id FROM workspace w WHERE w.id = ANY ($1) AND EXISTS (
        SELECT FROM credit_hold h WHERE h.workspace = w.rowid AND h.credits > 0
        AND h.expires_at > (extract(epoch FROM now()) * 1000)::bigint
    )";

/// The result of a hold.
pub(crate) type HoldResult = Result<HoldOutcome, PostgresError>;

type HoldJob = Job<Hold, HoldResult>;

/// The credits that were available to each workspace after its last hold, by its name.
pub(crate) type Available = Arc<Mutex<BTreeMap<String, u64>>>;

/// The result of the statement for one hold.
enum Held {
    Granted,
    /// The credits that were left did not suffice.
    Short {
        left: i64,
    },
    UnknownWorkspace,
    /// Another session has locked the balance.
    Locked,
}

/// The task that executes holds, one batch at a time. A hot workspace is therefore updated at most some
/// hundred times a second per node.
pub(crate) struct Holder {
    pool: Pool,
    sweep: Arc<Sweep>,
    releases: Releases,
    health: Arc<Health>,
    available: Available,
    /// The workspaces whose balance another session has locked for [`LOCKED_WAIT`], and when it was found locked last.
    locked: BTreeMap<WorkspaceId, Instant>,
    /// The end of the last wait for locked workspaces.
    waited_at: Option<Instant>,
}

impl Holder {
    pub(crate) fn new(
        pool: Pool,
        sweep: Arc<Sweep>,
        releases: Releases,
        health: Arc<Health>,
        available: Available,
    ) -> Self {
        Self { pool, sweep, releases, health, available, locked: BTreeMap::new(), waited_at: None }
    }

    pub(crate) async fn run(mut self, mut queue: BatchReceiver<Hold, HoldResult>) {
        let mut jobs = Vec::new();
        loop {
            match timeout(Health::INTERVAL, queue.take(&mut jobs, self.pool.sizes.batch)).await {
                Ok(true) => {
                    queue.yield_and_take_queued(&mut jobs, self.pool.sizes.batch);
                    self.execute(std::mem::take(&mut jobs)).await;
                }
                Ok(false) => return,
                Err(_) => self.health.record(&self.hold(&[], Duration::ZERO).await),
            }
        }
    }

    /// Executes holds until each has a result.
    async fn execute(&mut self, mut jobs: Vec<HoldJob>) {
        self.locked.retain(|_, at| at.elapsed() < LOCKED_AGE_MAX);
        let mut returned = BTreeMap::new();
        while !jobs.is_empty() {
            jobs.retain(|job| !job.is_abandoned());
            let (batch, later) = distinct(jobs);
            jobs = later;
            if batch.is_empty() {
                continue;
            }
            let wait = self.wait(&batch);
            let held = self.hold(&batch, wait).await;
            // A repeated hold affects no other lookup.
            if !held.as_ref().is_err_and(PostgresError::is_duplicate) {
                self.health.record(&held);
            }
            match held {
                Ok(held) => {
                    if !wait.is_zero() && held.iter().all(|held| matches!(held, Held::Locked)) {
                        let now = Instant::now();
                        self.locked.extend(batch.iter().map(|job| (job.item.workspace.clone(), now)));
                        self.waited_at = Some(now);
                    }
                    jobs.extend(self.reply(batch, held, &mut returned).await);
                }
                Err(error) if error.is_duplicate() => match self.reply_to_held(batch).await {
                    Ok(others) => jobs.extend(others),
                    Err((batch, error)) => fail(batch, &error),
                },
                // The statement waited for a table.
                Err(error) if error.is_blocked() => jobs.extend(batch),
                Err(error) => fail(batch, &error),
            }
        }
    }

    /// Returns how long a batch may wait if all its workspaces are locked.
    fn wait(&self, batch: &[HoldJob]) -> Duration {
        if !batch.iter().all(|job| self.locked.contains_key(&job.item.workspace)) {
            LOCKED_WAIT
        } else if self.waits_again() {
            LOCKED_AGAIN_WAIT
        } else {
            Duration::ZERO
        }
    }

    /// Returns whether holds wait for workspaces that were found locked before.
    fn waits_again(&self) -> bool {
        self.waited_at.is_none_or(|at| at.elapsed() >= LOCKED_WAIT)
    }

    /// Replies to the holds with a result, and returns those to execute again. `returned` contains the workspaces to
    /// which credits were returned, and whether some could not be.
    async fn reply(
        &mut self,
        batch: Vec<HoldJob>,
        held: Vec<Held>,
        returned: &mut BTreeMap<String, bool>,
    ) -> Vec<HoldJob> {
        let waits_again = self.waits_again();
        let (mut replies, mut again, mut short) = (Replies::default(), Vec::new(), Vec::new());
        for (job, held) in batch.into_iter().zip(held) {
            let workspace = &job.item.workspace;
            if !matches!(held, Held::Locked) {
                self.locked.remove(workspace);
            }
            match held {
                Held::Locked => match self.locked.get_mut(workspace).filter(|_| !waits_again) {
                    Some(at) => {
                        *at = Instant::now();
                        let error = PostgresError::Locked(workspace.clone());
                        replies.add(job, Err(error));
                    }
                    None => again.push(job),
                },
                Held::Granted if job.is_abandoned() => self.releases.release(job.item),
                Held::Granted => replies.add(job, Ok(HoldOutcome::Granted)),
                Held::UnknownWorkspace => {
                    let error = StoreError::UnknownWorkspace(job.item.workspace.clone());
                    replies.add(job, Err(error.into()));
                }
                // An earlier hold of the batch was too large.
                Held::Short { left } if left >= bigint(job.item.credits) => again.push(job),
                Held::Short { .. } => short.push(job),
            }
        }
        drop(replies);
        let (short, unreturned): (Vec<_>, Vec<_>) =
            short.into_iter().partition(|job| returned.contains_key(job.item.workspace.as_str()));
        // Expired holds and the rest of settlements may be enough.
        if !unreturned.is_empty() {
            let names = unreturned.iter().map(|job| job.item.workspace.as_str()).collect();
            match self.sweep.return_credits(&self.pool, &names).await {
                Ok(left) => {
                    returned.extend(names.into_iter().map(|name| (name.to_owned(), left.contains(name))));
                    again.extend(unreturned);
                }
                Err(error) => fail(unreturned, &error),
            }
        }
        if short.is_empty() {
            return again;
        }
        // A hold that was placed before needs no more credits.
        match self.reply_to_held(short).await {
            Ok(others) => self.reply_to_short(others, returned).await,
            Err((short, error)) => fail(short, &error),
        }
        again
    }

    /// Refuses holds of workspaces with too few credits. Those to which some could not be returned fail.
    async fn reply_to_short(&self, batch: Vec<HoldJob>, returned: &BTreeMap<String, bool>) {
        let names: BTreeSet<_> = batch.iter().map(|job| &job.item.workspace).collect();
        match self.select(HOLDING, &names).await {
            Ok(holding) => {
                let mut replies = Replies::default();
                for job in batch {
                    let workspace = job.item.workspace.as_str();
                    let result = if returned.get(workspace) == Some(&true) {
                        Err(PostgresError::NotHeld("credits could not be returned in time".to_owned()))
                    } else if holding.contains(workspace) {
                        Ok(HoldOutcome::Insufficient(Shortage::Held))
                    } else {
                        Ok(HoldOutcome::Insufficient(Shortage::Exhausted))
                    };
                    replies.add(job, result);
                }
            }
            Err(error) => fail(batch, &error),
        }
    }

    /// Executes the statement for a batch. Waits while all its workspaces are locked.
    async fn hold(&self, batch: &[HoldJob], wait: Duration) -> Result<Vec<Held>, PostgresError> {
        let Names { names, numbers } = Names::of(batch.iter().map(|job| &job.item));
        let lookups = lookup_ids(batch.iter().map(|job| &job.item));
        let amounts: Vec<_> = batch.iter().map(|job| bigint(job.item.credits)).collect();
        let totals = totals(&numbers, &amounts, names.len());
        let ttls: Vec<_> = batch
            .iter()
            .map(|job| i64::try_from(job.item.ttl.as_millis()).unwrap_or(i64::from(u32::MAX)))
            .collect();
        let receipts = receipts(batch.iter().map(|job| &job.item));
        let wait_ms = wait.as_millis() as i64;
        let values: [(Parameter<'_>, Type); 8] = [
            (&names, Type::TEXT_ARRAY),
            (&lookups, Type::BYTEA_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&amounts, Type::INT8_ARRAY),
            (&totals, Type::INT8_ARRAY),
            (&ttls, Type::INT8_ARRAY),
            (&receipts, Type::BYTEA_ARRAY),
            (&wait_ms, Type::INT8),
        ];
        let rows = self.pool.query_idempotent(HOLD, &values).await?;
        let Some(row) = rows.first() else { return Err(PostgresError::ConnectionLost("no row".to_owned())) };
        let (available, amounts, totals): (Vec<Option<i64>>, Vec<i64>, Vec<i64>) =
            (row.get(0), row.get(1), row.get(2));
        let locked: BTreeSet<i64> = row.get::<_, Vec<i64>>(3).into_iter().collect();
        let mut left = available.clone();
        let mut held = Vec::with_capacity(batch.len());
        for ((number, amount), total) in numbers.iter().zip(amounts).zip(totals) {
            let at = *number as usize - 1;
            held.push(match (available[at], left[at]) {
                (Some(_), _) if amount == 0 => Held::Granted,
                (Some(available), _) if total <= available => {
                    left[at] = Some(available - total);
                    Held::Granted
                }
                (Some(_), Some(left)) => Held::Short { left },
                _ if locked.contains(number) => Held::Locked,
                _ => Held::UnknownWorkspace,
            });
        }
        let mut known = self.available.lock();
        for (name, left) in names.iter().zip(left) {
            let Some(left) = left.map(credits) else { continue };
            match known.get_mut(*name) {
                Some(known) => *known = left,
                None => drop(known.insert((*name).to_owned(), left)),
            }
        }
        Ok(held)
    }

    /// Replies to the lookups of a batch that have a hold, which was placed before, or a spend. Returns the
    /// others.
    async fn reply_to_held(
        &self,
        batch: Vec<HoldJob>,
    ) -> Result<Vec<HoldJob>, (Vec<HoldJob>, PostgresError)> {
        let stored = match stored(&self.pool, batch.iter().map(|job| &job.item)).await {
            Ok(stored) => stored,
            Err(error) => return Err((batch, error)),
        };
        let (mut replies, mut others) = (Replies::default(), Vec::new());
        for job in batch {
            match stored.held_again(&job.item) {
                None => others.push(job),
                Some(result) => replies.add(job, result.map_err(PostgresError::from)),
            }
        }
        Ok(others)
    }

    /// Returns those of the workspaces that a statement selects.
    async fn select(
        &self,
        statement: &'static str,
        names: &BTreeSet<&WorkspaceId>,
    ) -> Result<BTreeSet<String>, PostgresError> {
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        let rows = self.pool.query(statement, &[(&names, Type::TEXT_ARRAY)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// Returns, for each hold, the sum of the credits of its workspace's holds up to it.
fn totals(numbers: &[i64], amounts: &[i64], workspaces: usize) -> Vec<i64> {
    let mut sums = vec![0_i64; workspaces + 1];
    let total = |(number, amount): (&i64, &i64)| {
        let sum = &mut sums[*number as usize];
        *sum = sum.saturating_add(*amount);
        *sum
    };
    numbers.iter().zip(amounts).map(total).collect()
}

/// Separates repeated holds of a lookup, which must see the result of the first.
fn distinct(jobs: Vec<HoldJob>) -> (Vec<HoldJob>, Vec<HoldJob>) {
    let mut seen = BTreeSet::new();
    jobs.into_iter().partition(|job| seen.insert(job.item.lookup_id))
}

fn fail(batch: Vec<HoldJob>, error: &PostgresError) {
    let mut replies = Replies::default();
    for job in batch {
        replies.add(job, Err(PostgresError::NotHeld(error.to_string())));
    }
}
