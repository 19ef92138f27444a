//! The state of one workspace in a session: the credits that the node leases and the lookups that hold them.
//!
//! [`Account`] is the same accounting as in a single-node store, applied to the credits that this node has leased and not
//! returned. Credits missing for a hold are leased from the workspace, by one request at a time. Credits without a hold are
//! returned when other nodes need them or after they were idle for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Account, AccountError, Hold, HoldOutcome};
use enrich_lib::model::WorkspaceId;
use enrich_store::{Backoff, StoreError};
use tokio::time::{Instant, sleep};

use crate::column::{bigint, credits};
use crate::error::PostgresError;
use crate::pool::Pool;
use enrich_store::sync::{Mutex, MutexGuard};

/// The initial lease size in credits, if the balance suffices for all nodes. A larger need is leased in full.
const LEASE_SIZE_FIRST: u64 = 16;

/// The maximum lease size in credits. A larger need is leased in full.
const LEASE_SIZE_MAX: u64 = 8_192;

/// A lease request within this time of the previous one doubles the lease size.
const DOUBLE_WITHIN: Duration = Duration::from_secs(1);

/// Idle credits return to the workspace after this time without a new hold.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a hold waits for other nodes to return idle credits.
const RECALL_TIMEOUT: Duration = Duration::from_secs(1);
const RECALL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));

pub(crate) struct WorkspaceState {
    pub(crate) workspace: WorkspaceId,
    /// The epoch of the session that this state belongs to.
    pub(crate) epoch: i64,
    lease: Mutex<Lease>,
    /// Held during a lease request. Contains the last failed request.
    request_lock: tokio::sync::Mutex<Option<FailedRequest>>,
    /// The number of lease requests started.
    requests_started: AtomicU64,
}

pub(crate) struct Lease {
    pub(crate) account: Account,
    /// The row id of the workspace, set by the first reply of the store.
    pub(crate) rowid: Option<i64>,
    /// Total credits leased and total credits returned. `returned_reported` is the total return that the store has confirmed.
    taken: u64,
    returned: u64,
    returned_reported: u64,
    /// The last recall answered on this node, and the last one whose answer the store has confirmed.
    recall: i64,
    recall_reported: i64,
    /// The size of the next lease request, in credits.
    size: u64,
    taken_at: Option<Instant>,
    used_at: Instant,
    /// The held credits last reported to the store.
    pub(crate) held_reported: u64,
}

/// A lease request that leased nothing. Holds that arrived before the request began and need at least as many credits
/// share its failure.
struct FailedRequest {
    number: u64,
    needs: u64,
    failure: Failure,
}

#[derive(Clone)]
enum Failure {
    Insufficient,
    Undecided,
    Error(String),
}

/// The outcome of a lease request for one hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    /// More credits are available. The hold should be retried.
    Retry,
    /// Neither the workspace nor any node has enough credits.
    Insufficient,
    /// The session has ended.
    SessionEnded,
}

/// A return of credits to report to the store.
pub(crate) struct Return {
    pub(crate) rowid: i64,
    returned: u64,
    recall: i64,
}

impl WorkspaceState {
    pub(crate) fn new(workspace: WorkspaceId, epoch: i64, now: Duration) -> Self {
        let mut account = Account::default();
        account.advance(now);
        let lease = Lease {
            account,
            rowid: None,
            taken: 0,
            returned: 0,
            returned_reported: 0,
            recall: 0,
            recall_reported: 0,
            size: LEASE_SIZE_FIRST,
            taken_at: None,
            used_at: Instant::now(),
            held_reported: 0,
        };
        let request_lock = tokio::sync::Mutex::new(None);
        Self { workspace, epoch, lease: Mutex::new(lease), request_lock, requests_started: AtomicU64::new(0) }
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }

    /// Reserves credits from those that the node has leased.
    pub(crate) fn hold(&self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        let mut lease = self.lease();
        lease.used_at = Instant::now();
        lease.account.hold(hold)
    }

    /// Returns the number of lease requests started. Read it before attempting a hold: see [`WorkspaceState::lease_more`].
    pub(crate) fn requests_started(&self) -> u64 {
        self.requests_started.load(Ordering::Relaxed)
    }

    /// Leases the credits missing for a hold of `credits`. `started_before` is the value of
    /// [`WorkspaceState::requests_started`] before the hold was attempted. Callers that wait for another caller's request share its outcome.
    pub(crate) async fn lease_more(
        &self,
        credits: u64,
        started_before: u64,
        pool: &Pool,
    ) -> Result<LeaseOutcome, PostgresError> {
        let mut last = self.request_lock.lock().await;
        let needs = self.missing(credits);
        if needs == 0 {
            return Ok(LeaseOutcome::Retry);
        }
        if let Some(failed) = &*last
            && failed.number > started_before
            && failed.needs <= needs
        {
            return self.failure(&failed.failure);
        }
        let number = self.requests_started.fetch_add(1, Ordering::Relaxed) + 1;
        let failure = match self.request(credits, pool).await {
            Ok(LeaseReply::Decided(outcome)) => return Ok(outcome),
            Ok(LeaseReply::Failed(failure)) => failure,
            Err(error) => {
                let failure = Failure::Error(error.to_string());
                *last = Some(FailedRequest { number, needs: 0, failure });
                return Err(error);
            }
        };
        let result = self.failure(&failure);
        *last = Some(FailedRequest { number, needs, failure });
        result
    }

    /// Converts a failure for one of the holds that share it.
    fn failure(&self, failure: &Failure) -> Result<LeaseOutcome, PostgresError> {
        match failure {
            Failure::Insufficient => Ok(LeaseOutcome::Insufficient),
            Failure::Undecided => Err(PostgresError::Undecided(self.workspace.clone())),
            Failure::Error(message) => Err(PostgresError::NotLeased(message.clone())),
        }
    }

    async fn request(&self, hold_credits: u64, pool: &Pool) -> Result<LeaseReply, PostgresError> {
        let started = Instant::now();
        let (mut is_retry, mut backoff) = (false, RECALL_BACKOFF);
        loop {
            let needs = self.missing(hold_credits);
            if needs == 0 {
                return Ok(LeaseReply::Decided(LeaseOutcome::Retry));
            }
            let (known, size) = self.lease().next_request();
            let name = self.workspace.as_str();
            let row = pool
                .query_one(
                    "SELECT outcome, of_workspace, taken FROM lease_take($1, $2, $3, $4, $5, $6)",
                    &[&self.epoch, &name, &bigint(known), &bigint(needs), &bigint(size), &is_retry],
                )
                .await?;
            match row.get(0) {
                "taken" => {
                    let mut lease = self.lease();
                    lease.record_leased(row.get(1), credits(row.get(2)));
                    lease.taken_at = Some(started);
                    return Ok(LeaseReply::Decided(LeaseOutcome::Retry));
                }
                "short" => return Ok(LeaseReply::Failed(Failure::Insufficient)),
                "ended" => return Ok(LeaseReply::Decided(LeaseOutcome::SessionEnded)),
                "recalled" if started.elapsed() >= RECALL_TIMEOUT => {
                    return Ok(LeaseReply::Failed(Failure::Undecided));
                }
                "recalled" => {}
                _ => return Err(StoreError::UnknownWorkspace(self.workspace.clone()).into()),
            }
            if !is_retry {
                // An expired node does not answer recalls.
                pool.query("SELECT nodes_end()", &[]).await?;
                is_retry = true;
            }
            sleep(backoff.next_pause()).await;
        }
    }

    fn missing(&self, credits: u64) -> u64 {
        credits.saturating_sub(self.lease().account.balance().available)
    }

    /// Returns all idle credits in answer to a recall.
    pub(crate) fn answer_recall(&self, rowid: i64, taken: u64, recall: i64) {
        let mut lease = self.lease();
        lease.record_leased(rowid, taken);
        lease.withdraw();
        lease.recall = recall;
        lease.size = 1;
    }

    /// Returns all idle credits if no lookup has attempted a hold for [`IDLE_TIMEOUT`].
    pub(crate) fn withdraw_idle(&self) {
        let mut lease = self.lease();
        if lease.used_at.elapsed() >= IDLE_TIMEOUT {
            lease.withdraw();
        }
    }

    /// Returns the totals to report to the store, or `None` if the store has confirmed them.
    pub(crate) fn unreported_return(&self) -> Option<Return> {
        let lease = self.lease();
        let is_reported = lease.returned == lease.returned_reported && lease.recall == lease.recall_reported;
        let rowid = lease.rowid.filter(|_| !is_reported)?;
        Some(Return { rowid, returned: lease.returned, recall: lease.recall })
    }

    /// Reports returned credits to the store. If the request fails, the next tick repeats it.
    pub(crate) async fn report_return(&self, unreported: Return, pool: &Pool) -> Result<(), PostgresError> {
        let Return { rowid, returned, recall } = unreported;
        let call = "SELECT lease_return($1, $2, $3, $4)";
        pool.query(call, &[&self.epoch, &rowid, &bigint(returned), &recall]).await?;
        let mut lease = self.lease();
        lease.returned_reported = lease.returned_reported.max(returned);
        lease.recall_reported = lease.recall_reported.max(recall);
        Ok(())
    }
}

enum LeaseReply {
    Decided(LeaseOutcome),
    Failed(Failure),
}

impl Lease {
    /// Returns the total leased so far and the size of the next lease request. The size doubles after a recent request and
    /// halves after an idle period.
    fn next_request(&mut self) -> (u64, u64) {
        match self.taken_at.map(|at| at.elapsed()) {
            Some(ago) if ago < DOUBLE_WITHIN => self.size = (self.size * 2).min(LEASE_SIZE_MAX),
            Some(ago) if ago >= IDLE_TIMEOUT => self.size = (self.size / 2).max(1),
            _ => {}
        }
        (self.taken, self.size)
    }

    /// Records the store's total of leased credits. The total includes requests whose reply was lost.
    fn record_leased(&mut self, rowid: i64, taken: u64) {
        self.rowid = Some(rowid);
        let more = taken.saturating_sub(self.taken);
        self.taken += more;
        // Cannot overflow: the total never exceeds the workspace's grants.
        let _ = self.account.grant(more);
    }

    fn withdraw(&mut self) {
        self.returned += self.account.withdraw(u64::MAX);
    }
}
