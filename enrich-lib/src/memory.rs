//! In-memory implementations of the ports, for tests, simulations and examples. A server with a single node
//! also uses [`WindowTable`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, iter, mem};

use async_trait::async_trait;
use rustc_hash::FxHashMap;

use crate::credit::{Account, AccountError, Balance, Hold, HoldOutcome, Settlement, Shortage};
use crate::email::Email;
use crate::key::KeyDigest;
use crate::model::{LookupId, ProfileUrl, Timestamp, WorkspaceId, whole_ms};
use crate::ports::{Credits, Keys, Resolver, Windows};
use crate::query::Query;
use crate::receipt::{RECEIPT_TTL, Receipt};
use crate::refusal::PortError;
use crate::resolver::Answer;
use crate::sharded_map::{Map, ShardedMap};
use crate::sync::{Mutex, lock};
use crate::window::{Window, Workspace};

/// API keys in memory.
#[derive(Debug, Default)]
pub struct KeyTable(Mutex<FxHashMap<KeyDigest, Workspace>>);

impl KeyTable {
    /// Assigns `key` to `workspace`.
    pub fn insert(&self, key: KeyDigest, workspace: Workspace) {
        lock(&self.0).insert(key, workspace);
    }

    /// Removes `key`.
    pub fn revoke(&self, key: &KeyDigest) {
        lock(&self.0).remove(key);
    }
}

#[async_trait]
impl Keys for KeyTable {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Ok(lock(&self.0).get(key).cloned())
    }
}

/// Burst counters in memory. Keeps the counters of a workspace's last windows of each length for late requests.
/// Inactive workspaces are eventually removed.
///
/// The table infers the time from the windows in which it counts. If a clock jumps far ahead and back,
/// counters may be lost.
#[derive(Debug, Default)]
pub struct WindowTable {
    live: ShardedMap<Counter>,
    test: ShardedMap<Counter>,
}

#[derive(Debug)]
struct Counter {
    window: WindowId,
    count: u64,
    expires_at: Timestamp,
    /// The previously used counter. Most workspaces have one or two counters.
    previous: Option<Box<Counter>>,
}

#[async_trait]
impl Windows for WindowTable {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let table = if window.is_test() { &self.test } else { &self.live };
        let mut table = table.lock(window.workspace());
        let counter = match table.get_mut(window.workspace()) {
            Some(counter) => counter,
            None => {
                make_room(&mut table, window);
                table.entry(window.workspace().clone()).or_insert(Counter::new(window))
            }
        };
        if counter.window != WindowId::of(window) {
            counter.select(window);
        }
        counter.count += 1;
        Ok(counter.count)
    }
}

/// Removes expired counters before the table grows. Reserving room for as many entries as are left keeps
/// these scans rare.
fn make_room(table: &mut Map<Counter>, window: &Window) {
    if table.len() == table.capacity() {
        let now = window.opens_at(); // a lower bound of the current time
        table.retain(|_, counter| counter.all().any(|counter| now < counter.expires_at));
        table.reserve(table.len());
    }
}

impl Counter {
    fn new(window: &Window) -> Self {
        Self { window: WindowId::of(window), count: 0, expires_at: window.expires_at(), previous: None }
    }

    /// Returns an iterator over this counter and the previous ones.
    fn all(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |counter| counter.previous.as_deref())
    }

    /// Moves the counter of `window` to the front.
    fn select(&mut self, window: &Window) {
        let last = mem::replace(self, Self::new(window));
        self.previous = Some(Box::new(last));
        if let Some(known) = take(&mut self.previous, self.window) {
            (self.count, self.expires_at) = (known.count, known.expires_at);
        } else {
            while let Some(evicted) = self.eviction_candidate(window) {
                take(&mut self.previous, evicted);
            }
        }
    }

    /// Returns a window whose counter is evicted for that of `window`. If there are too many of this length, it
    /// is the oldest one, for which no request can be late any more. If a clock has jumped back, so that other
    /// counters are out of its reach, it is the least recently used one. Otherwise, it is one of another length
    /// that has expired.
    fn eviction_candidate(&self, window: &Window) -> Option<WindowId> {
        let others = || self.all().skip(1);
        let has_length = |counter: &&Self| counter.window.seconds == self.window.seconds;
        let of_length = || others().filter(has_length).map(|counter| counter.window);
        if of_length().count() < window.countable_max() {
            let now = window.opens_at(); // a lower bound of the current time
            let mut of_others = others().filter(|counter| !has_length(counter));
            return of_others.find(|counter| counter.expires_at <= now).map(|counter| counter.window);
        }
        let reach = window.number().saturating_add(window.countable_max() as u64);
        let are_in_reach = of_length().all(|other| other.number < reach);
        if are_in_reach { of_length().min() } else { of_length().last() }
    }
}

/// Identifies a counter of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WindowId {
    seconds: u32,
    number: u64,
}

impl WindowId {
    fn of(window: &Window) -> Self {
        Self { seconds: window.seconds(), number: window.number() }
    }
}

/// Removes the counter of `window` from a linked list.
fn take(list: &mut Option<Box<Counter>>, window: WindowId) -> Option<Box<Counter>> {
    let counter = list.as_mut()?;
    if counter.window != window {
        return take(&mut counter.previous, window);
    }
    let previous = counter.previous.take();
    mem::replace(list, previous)
}

/// Accounts in memory. Keeps all spends, so that a lookup is charged once, however late it is settled again.
/// Holds and receipts expire only with [`advance`](Self::advance).
#[derive(Debug, Default)]
pub struct AccountTable {
    accounts: ShardedMap<Ledger>,
    /// The time of new accounts, in milliseconds on a monotonic clock.
    now_ms: AtomicU64,
}

/// An account and its spends.
#[derive(Debug, Default)]
struct Ledger {
    account: Account,
    /// The credits that each lookup has spent.
    spends: FxHashMap<LookupId, u64>,
    /// The lookup that has paid for each receipt, and when the receipt ends.
    receipts: FxHashMap<Receipt, (LookupId, Duration)>,
}

impl Ledger {
    fn payer(&self, hold: &Hold) -> Option<LookupId> {
        hold.receipt.and_then(|receipt| self.receipts.get(&receipt)).map(|(payer, _)| *payer)
    }

    fn hold(&mut self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        if self.payer(hold).is_some() && !self.account.tracks(hold.lookup_id) {
            return self.account.hold(&hold.without_credits());
        }
        self.account.hold(hold)
    }

    fn settle(
        &mut self,
        hold: &Hold,
        settlement: Settlement,
        now: Duration,
    ) -> Result<Option<LookupId>, AccountError> {
        match (settlement, self.payer(hold)) {
            (Settlement::Spend(1..), Some(payer)) => {
                let _ = self.account.release(hold); // fails only without a hold
                match self.spent(hold) {
                    None => Ok(Some(payer)),
                    spent => settlement.without_hold(spent).map(|()| None),
                }
            }
            _ => self.settle_unpaid(hold, settlement, now).map(|()| None),
        }
    }

    fn spent(&self, hold: &Hold) -> Option<u64> {
        self.spends.get(&hold.lookup_id).copied()
    }

    /// Settles a hold for whose receipt no lookup has paid.
    fn settle_unpaid(
        &mut self,
        hold: &Hold,
        settlement: Settlement,
        now: Duration,
    ) -> Result<(), AccountError> {
        let spent = self.spent(hold);
        let Self { account, spends, receipts } = self;
        let settled = match settlement {
            Settlement::Spend(credits @ 1..) => account.begin_spend(hold, credits).and_then(|()| {
                if spent.is_some() {
                    // The lookup held credits again after its spend.
                    account.abort_spend(hold.lookup_id);
                    return Err(AccountError::NoHold);
                }
                account.commit_spend(hold.lookup_id);
                spends.insert(hold.lookup_id, credits);
                receipts.extend(hold.receipt.map(|receipt| (receipt, (hold.lookup_id, now + RECEIPT_TTL))));
                Ok(())
            }),
            _ => account.release(hold),
        };
        match settled {
            Err(AccountError::NoHold) => settlement.without_hold(spent),
            settled => settled,
        }
    }
}

impl AccountTable {
    /// Grants `credits` to `workspace`. Fails with [`AccountError::TooLarge`].
    pub fn grant(&self, workspace: &WorkspaceId, credits: u64) -> Result<(), AccountError> {
        self.with(workspace, |ledger| ledger.account.grant(credits))
    }

    /// Returns the totals of `workspace`.
    pub fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let accounts = self.accounts.lock(workspace);
        accounts.get(workspace).map(|ledger| ledger.account.balance()).unwrap_or_default()
    }

    /// Advances all accounts to `now`, the time on a monotonic clock, so that overdue holds expire.
    pub fn advance(&self, now: Duration) {
        self.now_ms.fetch_max(whole_ms(now), Ordering::Relaxed);
        let advance = |ledger: &mut Ledger| {
            ledger.account.advance(now);
            ledger.receipts.retain(|_, (_, ends_at)| now < *ends_at);
        };
        self.accounts.shards().for_each(|mut shard| shard.values_mut().for_each(advance));
    }

    fn with<T>(&self, workspace: &WorkspaceId, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut accounts = self.accounts.lock(workspace);
        match accounts.get_mut(workspace) {
            Some(ledger) => act(ledger),
            None => {
                let ledger = accounts.entry(workspace.clone()).or_default();
                ledger.account.advance(Duration::from_millis(self.now_ms.load(Ordering::Relaxed)));
                act(ledger)
            }
        }
    }
}

#[async_trait]
impl Credits for AccountTable {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let accounts = self.accounts.lock(&hold.workspace);
        if hold.credits > 0 && !accounts.contains_key(&hold.workspace) {
            return Ok(HoldOutcome::Insufficient(Shortage::Exhausted));
        }
        drop(accounts);
        self.with(&hold.workspace, |ledger| ledger.hold(hold)).map_err(PortError::new)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let now = Duration::from_millis(self.now_ms.load(Ordering::Relaxed));
        let mut accounts = self.accounts.lock(&hold.workspace);
        let settled = match accounts.get_mut(&hold.workspace) {
            Some(ledger) => ledger.settle(hold, settlement, now),
            None => settlement.without_hold(None).map(|()| None),
        };
        settled.map_err(PortError::new)
    }

    fn keeps_receipts(&self) -> bool {
        true
    }

    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        Some(self.balance(workspace).available)
    }
}

/// A directory of people in memory, keyed by canonical email.
#[derive(Default)]
pub struct Directory(Mutex<FxHashMap<String, ProfileUrl>>);

impl Directory {
    /// Maps `email` to `profile`.
    pub fn insert(&self, email: &Email, profile: ProfileUrl) {
        lock(&self.0).insert(email.canonical(), profile);
    }

    /// Returns the profile of the person behind `email`.
    pub fn get(&self, email: &Email) -> Option<ProfileUrl> {
        lock(&self.0).get(&email.canonical()).cloned()
    }
}

#[async_trait]
impl Resolver for Directory {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        Ok(self.get(&query.email).into())
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({} people)", lock(&self.0).len())
    }
}

#[cfg(test)]
mod tests {
    use futures_executor::block_on;

    use super::*;
    use crate::window::Quota;

    fn workspace(name: &str) -> WorkspaceId {
        name.parse().unwrap()
    }

    /// Each scan reads the whole shard.
    #[test]
    fn removes_expired_windows_only_when_shard_is_full() {
        let map = ShardedMap::default();
        let early = workspace("early");
        map.lock(&early).insert(early.clone(), ());
        let all = (0_u32..).map(|n| workspace(&format!("late-{n}")));
        let mut neighbours = all.filter(|id| map.lock(id).contains_key(&early));

        let table = WindowTable::default();
        let count = |id: &WorkspaceId, seconds: u64| {
            let window = Quota::default().window(id, Timestamp::from_unix_ms(seconds * 1_000));
            assert_eq!(block_on(table.count(&window)).unwrap(), 1);
        };
        let has_early = || format!("{table:?}").contains("early");
        count(&early, 100);
        count(&neighbours.next().unwrap(), 1_000);
        assert!(has_early(), "the shard has room for more");
        neighbours.take(100).for_each(|id| count(&id, 1_000));
        assert!(!has_early());
    }

    #[test]
    fn spreads_workspaces_over_shards() {
        let map = ShardedMap::default();
        for n in 0..1_000 {
            let id = workspace(&format!("workspace-{n}"));
            map.lock(&id).insert(id.clone(), n);
        }
        let used = map.shards().filter(|shard| !shard.is_empty()).count();
        assert!(used > 50, "{used} of 64 shards");
    }
}
