//! Ports with a typical bug each. The contract names the promise that they break.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod narrow;
mod resolvers;

use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use enrich_contract::{CreditStore, KeyStore, START, Store, machine};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::key::{ApiKey, KeyDigest, KeyId};
use enrich_lib::memory::KeyTable;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Windows, async_trait};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Window, Workspace};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::yield_now;

/// Checks that exactly these rules are broken, and that the messages name them.
#[track_caller]
fn assert_broken(broken: Vec<String>, suite: &str, rules: &[&str]) {
    let named: Vec<_> =
        rules.iter().map(|rule| format!("the contract of {suite} is broken: {rule}: ")).collect();
    let is_named = broken.iter().zip(&named).all(|(message, start)| message.starts_with(start));
    assert!(broken.len() == named.len() && is_named, "{broken:#?}");
}

fn next_workspace(counter: &AtomicU32) -> WorkspaceId {
    format!("workspace-{}", counter.fetch_add(1, Ordering::Relaxed)).parse().unwrap()
}

/// Credits in tables, with a bug.
struct Tables {
    bug: Option<Bug>,
    /// Locked during a call, as by a transaction that is never rolled back.
    rows: AsyncMutex<Rows>,
    workspaces: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    HoldsNeverExpire,
    HoldsExpireByNodeClock,
    WorkspaceIgnored,
    CreditsTakenBeforeHold,
    HoldDeletedBeforeSpend,
    HoldInTwoTransactions,
    RepeatedSpendIsPaid,
    ExpiryInTwoTransactions,
    GrantInTwoTransactions,
}

#[derive(Default)]
struct Rows {
    now: Timestamp,
    /// The granted and the available credits.
    accounts: HashMap<WorkspaceId, (u64, u64)>,
    /// The workspace, the credits and the expiry.
    holds: BTreeMap<LookupId, (WorkspaceId, u64, Timestamp)>,
    spends: BTreeMap<LookupId, (WorkspaceId, u64)>,
}

impl Rows {
    fn available(&mut self, workspace: &WorkspaceId) -> &mut u64 {
        &mut self.accounts.entry(workspace.clone()).or_default().1
    }

    fn held(&self, workspace: &WorkspaceId) -> u64 {
        self.holds.values().filter(|hold| hold.0 == *workspace).map(|hold| hold.1).sum()
    }
}

impl Tables {
    fn is_same(&self, one: &WorkspaceId, other: &WorkspaceId) -> bool {
        one == other || self.bug == Some(Bug::WorkspaceIgnored)
    }

    /// Waits, if the call has this bug, as for the database.
    async fn wait(&self, bug: Bug) {
        if self.bug == Some(bug) {
            yield_now().await;
        }
    }
}

#[async_trait]
impl Credits for Tables {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let mut rows = self.rows.lock().await;
        if let Some((workspace, credits, _)) = rows.holds.get(&hold.lookup_id) {
            let is_repeated = self.is_same(workspace, &hold.workspace) && *credits == hold.credits;
            return if is_repeated { Ok(HoldOutcome::Granted) } else { Err(PortError::new("another hold")) };
        }
        let Some(rest) = rows.available(&hold.workspace).checked_sub(hold.credits) else {
            return Ok(HoldOutcome::Insufficient(Shortage::of(rows.held(&hold.workspace))));
        };
        if self.bug == Some(Bug::HoldInTwoTransactions) {
            drop(rows);
            rows = self.rows.lock().await;
        }
        *rows.available(&hold.workspace) = rest;
        self.wait(Bug::CreditsTakenBeforeHold).await;
        let is_by_node = self.bug == Some(Bug::HoldsExpireByNodeClock);
        let expires_at = if is_by_node { hold.placed_at } else { rows.now } + hold.ttl;
        rows.holds.insert(hold.lookup_id, (hold.workspace.clone(), hold.credits, expires_at));
        Ok(HoldOutcome::Granted)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let mut rows = self.rows.lock().await;
        self.wait(Bug::HoldDeletedBeforeSpend).await;
        let credits = match settlement {
            Settlement::Spend(credits) => credits,
            Settlement::Release => 0,
        };
        let spent = rows.spends.get(&hold.lookup_id);
        let spent = spent.filter(|spend| self.is_same(&spend.0, &hold.workspace)).map(|spend| spend.1);
        let held = rows.holds.get(&hold.lookup_id).filter(|held| held.0 == hold.workspace).map(|held| held.1);
        if held.is_some_and(|held| credits > held) {
            return Err(PortError::new("more than held"));
        }
        if let Some(held) = held {
            rows.holds.remove(&hold.lookup_id);
            let cost = if spent.is_none() { credits } else { 0 };
            *rows.available(&hold.workspace) += held - cost;
            self.wait(Bug::HoldDeletedBeforeSpend).await;
            if cost > 0 {
                rows.spends.insert(hold.lookup_id, (hold.workspace.clone(), cost));
            }
            if cost == credits {
                return Ok(None);
            }
        }
        if self.bug == Some(Bug::RepeatedSpendIsPaid) && spent == Some(credits) {
            *rows.available(&hold.workspace) -= credits;
            rows.spends.entry(hold.lookup_id).and_modify(|spend| spend.1 += credits);
        }
        settlement.without_hold(spent).map(|()| None).map_err(PortError::new)
    }
}

#[async_trait]
impl Store for Tables {
    async fn create_workspace(&self, _: Quota, credits: u64) -> WorkspaceId {
        let id = next_workspace(&self.workspaces);
        self.grant(&id, credits).await;
        id
    }

    async fn tick(&self, now: Timestamp) {
        let mut rows = self.rows.lock().await;
        rows.now = rows.now.max(now);
        let now = rows.now;
        let has_expired = |hold: &(LookupId, (WorkspaceId, u64, Timestamp))| {
            hold.1.2 <= now && self.bug != Some(Bug::HoldsNeverExpire)
        };
        let (expired, left): (BTreeMap<_, _>, _) = rows.holds.clone().into_iter().partition(has_expired);
        if self.bug == Some(Bug::ExpiryInTwoTransactions) {
            drop(rows);
            yield_now().await;
            rows = self.rows.lock().await;
        }
        rows.holds = left;
        for (_, (workspace, credits, _)) in expired {
            *rows.available(&workspace) += credits;
        }
    }
}

#[async_trait]
impl CreditStore for Tables {
    fn credits(&self) -> &dyn Credits {
        self
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        let mut rows = self.rows.lock().await;
        let (granted, available) = rows.accounts.get(workspace).copied().unwrap_or_default();
        if self.bug == Some(Bug::GrantInTwoTransactions) {
            drop(rows);
            yield_now().await;
            rows = self.rows.lock().await;
        }
        rows.accounts.insert(workspace.clone(), (granted + credits, available + credits));
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let rows = self.rows.lock().await;
        let (granted, available) = rows.accounts[workspace];
        let spent = rows.spends.values().filter(|spend| spend.0 == *workspace).map(|spend| spend.1).sum();
        Balance { granted, available, held: rows.held(workspace), spent }
    }
}

async fn open(bug: Option<Bug>) -> Arc<Tables> {
    let tables = Tables { bug, rows: AsyncMutex::default(), workspaces: AtomicU32::default() };
    tables.tick(START).await;
    Arc::new(tables)
}

/// Checks that a bug breaks exactly these rules.
fn assert_credits_broken(bug: Option<Bug>, rules: &[&str]) {
    let open = async || open(bug).await;
    assert_broken(enrich_contract::credits_contract!(broken open), "credits", rules);
    assert_broken(enrich_contract::concurrency_contract!(broken open), "concurrency", &[]);
    assert_broken(enrich_contract::receipts_contract!(broken open), "receipts", &[]);
}

#[test]
fn credits_without_a_bug_break_no_rule() {
    assert_credits_broken(None, &[]);
    machine::compare(100, async || open(None).await);
}

#[test]
fn credits_of_holds_must_expire_by_the_clock_of_the_store() {
    let rules = ["hold lasts until its expiry", "expired hold returns its credits"];
    assert_credits_broken(Some(Bug::HoldsNeverExpire), &rules[1..]);
    assert_credits_broken(Some(Bug::HoldsExpireByNodeClock), &rules);
}

#[test]
fn repeated_spend_must_not_be_paid_again() {
    let rules = ["lookup holds once and spends once", "lookup is found by all of its id"];
    let open = async || open(Some(Bug::RepeatedSpendIsPaid)).await;
    assert_broken(enrich_contract::credits_contract!(broken open), "credits", &rules);
}

#[test]
fn credits_of_another_workspace_cannot_be_used() {
    assert_credits_broken(Some(Bug::WorkspaceIgnored), &["workspaces are independent"]);
}

#[test]
fn credits_are_lost_by_calls_that_are_dropped_between_two_steps() {
    for bug in [Bug::CreditsTakenBeforeHold, Bug::HoldDeletedBeforeSpend] {
        assert_credits_broken(Some(bug), &[]);
        let compare = || machine::compare(100, async || open(Some(bug)).await);
        // The environment can replace the number of cases by a smaller one.
        assert!((0..100).any(|_| catch_unwind(compare).is_err()), "{bug:?}");
    }
}

#[test]
fn credits_are_held_twice_in_two_transactions() {
    let open = async || open(Some(Bug::HoldInTwoTransactions)).await;
    let broken = enrich_contract::concurrency_contract!(broken open);
    let rule = "concurrent lookups never hold more than the balance";
    assert!(broken.iter().any(|message| message.contains(rule)), "{broken:#?}");
}

#[test]
fn credits_of_grants_and_expired_holds_must_change_in_one_transaction() {
    for bug in [Bug::ExpiryInTwoTransactions, Bug::GrantInTwoTransactions] {
        let open = async || open(Some(bug)).await;
        let rules = ["concurrent grants and expiries lose no change"];
        assert_broken(enrich_contract::concurrency_contract!(broken open), "concurrency", &rules);
    }
}

/// Keys with a cache by id. All of them are live keys.
#[derive(Default)]
struct Cached {
    /// A revocation removes its key from the cache.
    evicts: bool,
    keys: KeyTable,
    cache: Mutex<HashMap<KeyId, Workspace>>,
    quotas: Mutex<HashMap<WorkspaceId, Quota>>,
    workspaces: AtomicU32,
}

#[async_trait]
impl Keys for Cached {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        if let Some(workspace) = self.cache.lock().unwrap().get(&key.key_id()) {
            return Ok(Some(workspace.clone()));
        }
        let found = self.keys.find(key).await?;
        yield_now().await;
        if let Some(workspace) = &found {
            self.cache.lock().unwrap().insert(key.key_id(), workspace.clone());
        }
        Ok(found)
    }
}

#[async_trait]
impl Store for Cached {
    async fn create_workspace(&self, quota: Quota, _: u64) -> WorkspaceId {
        let id = next_workspace(&self.workspaces);
        self.quotas.lock().unwrap().insert(id.clone(), quota);
        id
    }

    async fn tick(&self, _: Timestamp) {}
}

#[async_trait]
impl KeyStore for Cached {
    fn keys(&self) -> &dyn Keys {
        self
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        let quota = self.quotas.lock().unwrap()[workspace];
        self.keys.insert(key.digest(), Workspace::new(workspace.clone(), quota));
    }

    async fn revoke(&self, key: &ApiKey) {
        self.keys.revoke(&key.digest());
        if self.evicts {
            self.cache.lock().unwrap().remove(&key.digest().key_id());
        }
    }
}

#[test]
fn keys_cached_by_id_stay_valid_after_their_revocation_and_test_keys_are_billed() {
    let rules = [
        "revoked key is not found",
        "key revoked during lookups is not found",
        "test key is found as one",
        "key is found by all of its digest",
    ];
    for evicts in [false, true] {
        let open = async || Arc::new(Cached { evicts, ..Cached::default() });
        let broken = enrich_contract::keys_contract!(broken open);
        assert_broken(broken, "keys", &rules[usize::from(evicts)..]);
    }
}

/// A counter that reads and writes in two steps, with room for 100 windows.
#[derive(Default)]
struct LostCounts(Mutex<HashMap<(WorkspaceId, u64, u64), u64>>);

#[async_trait]
impl Windows for LostCounts {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let length = window.closes_at().unix_ms() - window.opens_at().unix_ms();
        let key = (window.workspace().clone(), window.number(), length);
        let count = self.0.lock().unwrap().get(&key).copied().unwrap_or_default() + 1;
        yield_now().await;
        let mut counts = self.0.lock().unwrap();
        if counts.len() == 100 {
            counts.clear();
        }
        counts.insert(key, count);
        Ok(count)
    }
}

#[test]
fn counts_are_lost_between_two_steps_and_when_the_table_is_full() {
    let open = async || (Arc::new(LostCounts::default()) as Arc<dyn Windows>, START);
    let rules = ["workspaces have separate windows", "concurrent requests get distinct counts"];
    assert_broken(enrich_contract::windows_contract!(broken open), "windows", &rules);
}
