//! One workspace in a session: what the node took of its credits, and the lookups that hold them.
//!
//! The account is the arithmetic of a store with one node, on what this node has taken and not returned. What is missing for
//! a hold is taken from the workspace, by one take at a time; what nobody holds goes back when others ask for it, or when
//! it was idle for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Account, AccountFault, Hold, Holding};
use enrich_lib::model::{Timestamp, WorkspaceId};
use tokio::time::{Instant, sleep};

use crate::column::{bigint, credits};
use crate::error::StoreError;
use crate::pool::Pool;
use crate::sync::{Mutex, MutexGuard, lock};

/// What a node takes beyond its need the first time, if there is enough for all.
const WANTS_FIRST: u64 = 16;

/// The most that a node takes beyond its need.
const WANTS_MAX: u64 = 8_192;

/// Two takes within this time: the next one takes more.
const SOON: Duration = Duration::from_secs(1);

/// Credits that no lookup asked for in this time return to the workspace.
const IDLE: Duration = Duration::from_secs(10);

/// How long a hold waits for other nodes to give back what they don't need.
const RECALL_MAX: Duration = Duration::from_secs(1);
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct Slot {
    pub(crate) workspace: WorkspaceId,
    /// Of the session that it is in.
    pub(crate) epoch: i64,
    books: Mutex<Books>,
    /// Held by the one take under way. What the last one told that took nothing.
    taking: tokio::sync::Mutex<Option<Refusal>>,
    /// How many takes have begun.
    begun: AtomicU64,
}

pub(crate) struct Books {
    pub(crate) account: Account,
    /// The workspace's, once the store was asked.
    pub(crate) rowid: Option<i64>,
    /// All that was ever taken, and all that was ever given back. The store knows of `returned_told`.
    taken: u64,
    returned: u64,
    returned_told: u64,
    /// The last recall that was answered here, and in the store.
    recall: i64,
    recall_told: i64,
    wants: u64,
    taken_at: Option<Instant>,
    used_at: Instant,
    /// What the store shows as held.
    pub(crate) held_shown: u64,
}

/// What a take told that took nothing: as true for whoever came before it began, and needs as much.
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

/// How a take ended for a hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// There are more credits than before: the hold is worth another try.
    Again,
    /// Neither the workspace nor any node has enough.
    Short,
    /// The session has ended.
    Ended,
}

/// What is to be told to the store.
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

    /// Sets credits aside, of those that the node has.
    pub(crate) fn hold(&self, hold: &Hold) -> Result<Holding, AccountFault> {
        let mut books = self.books();
        books.used_at = Instant::now();
        books.account.hold(hold)
    }

    /// How many takes have begun. To be asked before a hold is tried: see [`Slot::take`].
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Takes what is missing to hold `credits`, for one who came when so many takes had begun. Those who wait for another's
    /// take share what it tells.
    pub(crate) async fn take(&self, credits: u64, came: u64, pool: &Pool) -> Result<Taking, StoreError> {
        let mut last = self.taking.lock().await;
        let needs = self.missing(credits);
        if needs == 0 {
            return Ok(Taking::Again);
        }
        if let Some(refusal) = &*last
            && refusal.number > came
            && refusal.needs <= needs
        {
            return self.told(&refusal.outcome);
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let outcome = match self.ask(credits, pool).await {
            Ok(Asked::Taking(taking)) => return Ok(taking),
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

    fn told(&self, outcome: &Outcome) -> Result<Taking, StoreError> {
        match outcome {
            Outcome::Short => Ok(Taking::Short),
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
                return Ok(Asked::Taking(Taking::Again));
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
                    return Ok(Asked::Taking(Taking::Again));
                }
                "short" => return Ok(Asked::Refused(Outcome::Short)),
                "ended" => return Ok(Asked::Taking(Taking::Ended)),
                "recalled" if began.elapsed() >= RECALL_MAX => return Ok(Asked::Refused(Outcome::Undecided)),
                "recalled" => {}
                _ => return Err(StoreError::UnknownWorkspace(self.workspace.clone())),
            }
            if !again {
                // A node that is gone answers no recall.
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

    /// Others want what is idle: all of it goes back.
    pub(crate) fn answer_recall(&self, rowid: i64, taken: u64, recall: i64) {
        let mut books = self.books();
        books.learn(rowid, taken);
        books.withdraw();
        books.recall = recall;
        books.wants = 1;
    }

    /// Gives back what no lookup has asked for in a while.
    pub(crate) fn withdraw_idle(&self) {
        let mut books = self.books();
        if books.used_at.elapsed() >= IDLE {
            books.withdraw();
        }
    }

    /// What the store does not know yet of what was given back.
    pub(crate) fn untold_return(&self) -> Option<Return> {
        let books = self.books();
        let is_told = books.returned == books.returned_told && books.recall == books.recall_told;
        let rowid = books.rowid.filter(|_| !is_told)?;
        Some(Return { rowid, returned: books.returned, recall: books.recall })
    }

    /// Tells the store what was given back. It is told again until it has answered.
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
    Taking(Taking),
    Refused(Outcome),
}

impl Books {
    /// What is known to be taken, and how much the next take wants: more if the last one was a moment ago.
    fn next_take(&mut self) -> (u64, u64) {
        match self.taken_at.map(|at| at.elapsed()) {
            Some(ago) if ago < SOON => self.wants = (self.wants * 2).min(WANTS_MAX),
            Some(ago) if ago >= IDLE => self.wants = (self.wants / 2).max(1),
            _ => {}
        }
        (self.taken, self.wants)
    }

    /// The store says that the node has taken so much in all. What it did not know of is an answer that was lost.
    fn learn(&mut self, rowid: i64, taken: u64) {
        self.rowid = Some(rowid);
        let more = taken.saturating_sub(self.taken);
        self.taken += more;
        // Cannot be too large: it is less than the workspace was granted.
        let _ = self.account.grant(more);
    }

    fn withdraw(&mut self) {
        self.returned += self.account.withdraw(u64::MAX);
    }
}
