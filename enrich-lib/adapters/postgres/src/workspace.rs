//! The state of one workspace in a session: the credits that the node leases and the lookups that hold them.
//!
//! [`Account`] is the same accounting as in a single-node store, applied to the credits that this node has leased and not
//! returned. Credits missing for a hold are leased from the workspace, by one request at a time. Credits without a hold are
//! returned when other nodes need them. After an idle period, the lease ends, and a later hold begins the next one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Account, AccountError, Hold, HoldOutcome};
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_store::{Backoff, StoreError};
use tokio::time::{Instant, sleep};

use crate::column::{bigint, credits};
use crate::error::PostgresError;
use crate::pool::{Pool, Value};
use enrich_store::sync::{Mutex, MutexGuard};

/// The initial lease size in credits, if the balance suffices for all nodes. A larger need is leased in full.
const LEASE_SIZE_FIRST: u64 = 16;

/// The maximum lease size in credits. A larger need is leased in full.
const LEASE_SIZE_MAX: u64 = 8_192;

/// A lease request within this time of the previous one doubles the lease size.
const DOUBLE_WITHIN: Duration = Duration::from_secs(1);

/// A lease ends after this time without a hold.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a hold waits for other nodes to return idle credits.
const RECALL_TIMEOUT: Duration = Duration::from_secs(1);
const RECALL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));

pub(crate) struct WorkspaceState {
    pub(crate) workspace: WorkspaceId,
    /// The epoch of the session that this state belongs to.
    pub(crate) epoch: i64,
    /// The number of leases that the session has begun.
    leases_begun: Arc<AtomicI64>,
    lease: Mutex<Lease>,
    /// Held during a lease request. Contains the last failed request.
    request_lock: tokio::sync::Mutex<Option<FailedRequest>>,
    /// The number of lease requests started.
    requests_started: AtomicU64,
}

pub(crate) struct Lease {
    pub(crate) account: Account,
    /// The credits that lookups have spent in the session. Such a lookup may hold credits again, but is not charged again.
    pub(crate) spends: BTreeMap<LookupId, u64>,
    /// The row id of the workspace, set by the first reply of the store.
    pub(crate) rowid: Option<i64>,
    /// The number of the lease, or `None` before its first request.
    number: Option<i64>,
    /// Total credits leased and total credits returned.
    taken: u64,
    returned: u64,
    /// The size of the next lease request, in credits.
    size: u64,
    taken_at: Option<Instant>,
    used_at: Instant,
    /// The held credits last reported to the store.
    held_reported: u64,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Return {
    /// The row id of the workspace, and the number of the lease.
    pub(crate) rowid: i64,
    pub(crate) number: i64,
    /// The total credits returned, or `None` to end the lease.
    pub(crate) returned: Option<u64>,
    /// The last recall that the return answers.
    pub(crate) recall: i64,
}

impl Return {
    /// Ends a lease that no lookup of this node depends on.
    pub(crate) fn end(rowid: i64, number: i64) -> Self {
        Self { rowid, number, returned: None, recall: 0 }
    }
}

impl WorkspaceState {
    pub(crate) fn new(
        workspace: WorkspaceId,
        epoch: i64,
        leases_begun: Arc<AtomicI64>,
        now: Duration,
    ) -> Self {
        let mut account = Account::default();
        account.advance(now);
        let lease = Lease {
            account,
            spends: BTreeMap::new(),
            rowid: None,
            number: None,
            taken: 0,
            returned: 0,
            size: LEASE_SIZE_FIRST,
            taken_at: None,
            used_at: Instant::now(),
            held_reported: 0,
        };
        let (lease, request_lock) = (Mutex::new(lease), tokio::sync::Mutex::new(None));
        Self { workspace, epoch, leases_begun, lease, request_lock, requests_started: AtomicU64::new(0) }
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
            let (number, known, size) = self.lease().next_request(&self.leases_begun);
            let (name, known, needs) = (self.workspace.as_str(), bigint(known), bigint(needs));
            let call = "SELECT outcome, of_workspace, taken FROM lease_take($1, $2, $3, $4, $5, $6, $7)";
            let values: [Value<'_>; 7] =
                [&self.epoch, &name, &number, &known, &needs, &bigint(size), &is_retry];
            let row = pool.query_one_idempotent(call, &values).await?;
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
            is_retry = true;
            sleep(backoff.next_pause()).await;
        }
    }

    fn missing(&self, credits: u64) -> u64 {
        credits.saturating_sub(self.lease().account.balance().available)
    }

    /// Answers a recall of the lease with this number: returns all idle credits, and ends the lease if nothing is held.
    pub(crate) fn answer_recall(&self, rowid: i64, number: i64, taken: u64, recall: i64) -> Return {
        let no_request = self.request_lock.try_lock();
        let mut lease = self.lease();
        if lease.number != Some(number) {
            return Return::end(rowid, number); // a request without a reply began it
        }
        lease.record_leased(rowid, taken);
        lease.size = 1;
        if no_request.is_ok()
            && let Some(end) = lease.end()
        {
            return end;
        }
        lease.returned += lease.account.withdraw(u64::MAX);
        Return { rowid, number, returned: Some(lease.returned), recall }
    }

    /// Ends the lease if no lookup has attempted a hold for [`IDLE_TIMEOUT`] and none depends on it.
    pub(crate) fn end_idle(&self) -> Option<Return> {
        let _no_request = self.request_lock.try_lock().ok()?;
        let mut lease = self.lease();
        if lease.is_idle() { lease.end() } else { None }
    }

    /// Returns the row id of the workspace and the held credits, if the store has not received these.
    pub(crate) fn unreported_held(&self) -> Option<(i64, u64)> {
        let lease = self.lease();
        let held = lease.account.balance().held;
        lease.id().filter(|_| held != lease.held_reported).map(|(rowid, _)| (rowid, held))
    }

    /// Records that the store has received the held credits.
    pub(crate) fn confirm_held(&self, held: u64) {
        self.lease().held_reported = held;
    }

    /// Returns `true` if this state has nothing to remember: no lookup and, while its session is in use, no lease.
    pub(crate) fn is_disposable(&self, session_is_newest: bool) -> bool {
        let lease = self.lease();
        lease.account.is_at_rest() && (!session_is_newest || (lease.is_idle() && lease.id().is_none()))
    }
}

enum LeaseReply {
    Decided(LeaseOutcome),
    Failed(Failure),
}

impl Lease {
    /// Returns the number of the lease, its total leased so far, and the size of the next request. The size doubles after a
    /// recent request and halves after an idle period. Begins a lease if there is none.
    fn next_request(&mut self, leases_begun: &AtomicI64) -> (i64, u64, u64) {
        match self.taken_at.map(|at| at.elapsed()) {
            Some(ago) if ago < DOUBLE_WITHIN => self.size = (self.size * 2).min(LEASE_SIZE_MAX),
            Some(ago) if ago >= IDLE_TIMEOUT => self.size = (self.size / 2).max(1),
            _ => {}
        }
        let number = *self.number.get_or_insert_with(|| leases_begun.fetch_add(1, Ordering::Relaxed) + 1);
        (number, self.taken, self.size)
    }

    /// Records the store's total of leased credits. The total includes requests whose reply was lost.
    fn record_leased(&mut self, rowid: i64, taken: u64) {
        self.rowid = Some(rowid);
        let more = taken.saturating_sub(self.taken);
        self.taken += more;
        // Cannot overflow: the total never exceeds the workspace's grants.
        let _ = self.account.grant(more);
    }

    /// Returns the row id of the workspace and the number of the lease, if there is one.
    pub(crate) fn id(&self) -> Option<(i64, i64)> {
        self.rowid.zip(self.number)
    }

    fn is_idle(&self) -> bool {
        self.used_at.elapsed() >= IDLE_TIMEOUT
    }

    /// Ends the lease unless lookups hold credits of it, and returns the call that ends it in the store. The next request
    /// begins another lease. No request may be in progress.
    fn end(&mut self) -> Option<Return> {
        if self.account.balance().held > 0 {
            return None;
        }
        let (rowid, number) = self.id()?;
        self.number = None;
        self.account.withdraw(u64::MAX);
        (self.taken, self.returned, self.held_reported) = (0, 0, 0);
        Some(Return::end(rowid, number))
    }
}
