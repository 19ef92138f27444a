//! The state of one workspace in a session: the credits that the node leases and the lookups that hold them.
//!
//! [`Account`] is the same accounting as in a single-node store, applied to the credits that this node has leased and not
//! returned. Credits missing for a hold are leased from the workspace, by one request at a time. Credits without a hold are
//! returned when other nodes need them or after they were idle for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Account, AccountError, Hold, HoldOutcome};
use enrich_lib::model::{Timestamp, WorkspaceId};
use tokio::time::{Instant, sleep};

use crate::column::{bigint, credits};
use crate::error::StoreError;
use crate::pool::Pool;
use crate::sync::{Mutex, MutexGuard, lock};

/// The initial lease size in credits, if the balance suffices for all nodes. A larger need is leased in full.
const WANTS_FIRST: u64 = 16;

/// The maximum lease size in credits. A larger need is leased in full.
const WANTS_MAX: u64 = 8_192;

/// A lease request within this time of the previous one doubles the lease size.
const SOON: Duration = Duration::from_secs(1);

/// Idle credits return to the workspace after this time without a new hold.
const IDLE: Duration = Duration::from_secs(10);

/// How long a hold waits for other nodes to return idle credits.
const RECALL_MAX: Duration = Duration::from_secs(1);
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct Slot {
    pub(crate) workspace: WorkspaceId,
    /// The epoch of the session that this state belongs to.
    pub(crate) epoch: i64,
    books: Mutex<Books>,
    /// Held during a lease request. Contains the last refusal.
    taking: tokio::sync::Mutex<Option<Refusal>>,
    /// The number of lease requests started.
    begun: AtomicU64,
}

pub(crate) struct Books {
    pub(crate) account: Account,
    /// The row id of the workspace, set by the first reply of the store.
    pub(crate) rowid: Option<i64>,
    /// Total credits leased and total credits returned. `returned_told` is the total return that the store has confirmed.
    taken: u64,
    returned: u64,
    returned_told: u64,
    /// The last recall answered on this node, and the last one whose answer the store has confirmed.
    recall: i64,
    recall_told: i64,
    wants: u64,
    taken_at: Option<Instant>,
    used_at: Instant,
    /// The held credits last reported to the store.
    pub(crate) held_shown: u64,
}

/// The outcome of a lease request that leased nothing. The outcome also applies to holds that arrived before the request
/// began and need at least as many credits.
struct Refusal {
    number: u64,
    needs: u64,
    outcome: Outcome,
}

#[derive(Clone)]
enum Outcome {
    Short,
    Undecided,
    Failed(String),
}

/// The outcome of a lease request for one hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    /// More credits are available. The hold should be retried.
    Again,
    /// Neither the workspace nor any node has enough credits.
    Short,
    /// The session has ended.
    Ended,
}

/// A return of credits to report to the store.
pub(crate) struct Return {
    pub(crate) rowid: i64,
    returned: u64,
    recall: i64,
}

impl Slot {
    pub(crate) fn new(workspace: WorkspaceId, epoch: i64, now: Timestamp) -> Self {
        let mut account = Account::default();
        account.advance(now);
        let books = Books {
            account,
            rowid: None,
            taken: 0,
            returned: 0,
            returned_told: 0,
            recall: 0,
            recall_told: 0,
            wants: WANTS_FIRST,
            taken_at: None,
            used_at: Instant::now(),
            held_shown: 0,
        };
        let taking = tokio::sync::Mutex::new(None);
        Self { workspace, epoch, books: Mutex::new(books), taking, begun: AtomicU64::new(0) }
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    /// Reserves credits from those that the node has leased.
    pub(crate) fn hold(&self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        let mut books = self.books();
        books.used_at = Instant::now();
        books.account.hold(hold)
    }

    /// Returns the number of lease requests started. Read it before attempting a hold: see [`Slot::take`].
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Leases the credits missing for a hold of `credits`. `came` is the value of [`Slot::begun`] before the hold was
    /// attempted. Callers that wait for another caller's request share its outcome.
    pub(crate) async fn take(
        &self,
        credits: u64,
        came: u64,
        pool: &Pool,
    ) -> Result<LeaseOutcome, StoreError> {
        let mut last = self.taking.lock().await;
        let needs = self.missing(credits);
        if needs == 0 {
            return Ok(LeaseOutcome::Again);
        }
        if let Some(refusal) = &*last
            && refusal.number > came
            && refusal.needs <= needs
        {
            return self.told(&refusal.outcome);
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let outcome = match self.ask(credits, pool).await {
            Ok(Asked::LeaseOutcome(taking)) => return Ok(taking),
            Ok(Asked::Refused(outcome)) => outcome,
            Err(error) => {
                let outcome = Outcome::Failed(error.to_string());
                *last = Some(Refusal { number, needs: 0, outcome });
                return Err(error);
            }
        };
        let told = self.told(&outcome);
        *last = Some(Refusal { number, needs, outcome });
        told
    }

    fn told(&self, outcome: &Outcome) -> Result<LeaseOutcome, StoreError> {
        match outcome {
            Outcome::Short => Ok(LeaseOutcome::Short),
            Outcome::Undecided => Err(StoreError::Undecided(self.workspace.clone())),
            Outcome::Failed(why) => Err(StoreError::NotTaken(why.clone())),
        }
    }

    async fn ask(&self, credits_held: u64, pool: &Pool) -> Result<Asked, StoreError> {
        let began = Instant::now();
        let (mut again, mut pause) = (false, PAUSE_FIRST);
        loop {
            let needs = self.missing(credits_held);
            if needs == 0 {
                return Ok(Asked::LeaseOutcome(LeaseOutcome::Again));
            }
            let (known, wants) = self.books().next_take();
            let name = self.workspace.as_str();
            let row = pool
                .query_one(
                    "SELECT outcome, of_workspace, taken FROM lease_take($1, $2, $3, $4, $5, $6)",
                    &[&self.epoch, &name, &bigint(known), &bigint(needs), &bigint(wants), &again],
                )
                .await?;
            match row.get(0) {
                "taken" => {
                    let mut books = self.books();
                    books.learn(row.get(1), credits(row.get(2)));
                    books.taken_at = Some(began);
                    return Ok(Asked::LeaseOutcome(LeaseOutcome::Again));
                }
                "short" => return Ok(Asked::Refused(Outcome::Short)),
                "ended" => return Ok(Asked::LeaseOutcome(LeaseOutcome::Ended)),
                "recalled" if began.elapsed() >= RECALL_MAX => return Ok(Asked::Refused(Outcome::Undecided)),
                "recalled" => {}
                _ => return Err(StoreError::UnknownWorkspace(self.workspace.clone())),
            }
            if !again {
                // An expired node does not answer recalls.
                pool.query("SELECT nodes_end()", &[]).await?;
                again = true;
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    fn missing(&self, credits: u64) -> u64 {
        credits.saturating_sub(self.books().account.balance().available)
    }

    /// Returns all idle credits in answer to a recall.
    pub(crate) fn answer_recall(&self, rowid: i64, taken: u64, recall: i64) {
        let mut books = self.books();
        books.learn(rowid, taken);
        books.withdraw();
        books.recall = recall;
        books.wants = 1;
    }

    /// Returns all idle credits if no lookup has attempted a hold for [`IDLE`].
    pub(crate) fn withdraw_idle(&self) {
        let mut books = self.books();
        if books.used_at.elapsed() >= IDLE {
            books.withdraw();
        }
    }

    /// Returns the totals to report to the store, or `None` if the store has confirmed them.
    pub(crate) fn untold_return(&self) -> Option<Return> {
        let books = self.books();
        let is_told = books.returned == books.returned_told && books.recall == books.recall_told;
        let rowid = books.rowid.filter(|_| !is_told)?;
        Some(Return { rowid, returned: books.returned, recall: books.recall })
    }

    /// Reports returned credits to the store. If the request fails, the next tick repeats it.
    pub(crate) async fn tell(&self, what: Return, pool: &Pool) -> Result<(), StoreError> {
        let Return { rowid, returned, recall } = what;
        let call = "SELECT lease_return($1, $2, $3, $4)";
        pool.query(call, &[&self.epoch, &rowid, &bigint(returned), &recall]).await?;
        let mut books = self.books();
        books.returned_told = books.returned_told.max(returned);
        books.recall_told = books.recall_told.max(recall);
        Ok(())
    }
}

enum Asked {
    LeaseOutcome(LeaseOutcome),
    Refused(Outcome),
}

impl Books {
    /// Returns the total leased so far and the size of the next lease request. The size doubles after a recent request and
    /// halves after an idle period.
    fn next_take(&mut self) -> (u64, u64) {
        match self.taken_at.map(|at| at.elapsed()) {
            Some(ago) if ago < SOON => self.wants = (self.wants * 2).min(WANTS_MAX),
            Some(ago) if ago >= IDLE => self.wants = (self.wants / 2).max(1),
            _ => {}
        }
        (self.taken, self.wants)
    }

    /// Records the store's total of leased credits. The total includes requests whose reply was lost.
    fn learn(&mut self, rowid: i64, taken: u64) {
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
