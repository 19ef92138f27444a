//! The ports in memory: for tests, simulations and examples, and the host's windows on one node.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::credit::{Account, AccountFault, Balance, Hold, Holding, Settlement};
use crate::email::Email;
use crate::key::KeyDigest;
use crate::model::{ProfileUrl, Timestamp, WorkspaceId};
use crate::ports::{Credits, Keys, Resolver, Windows};
use crate::refusal::PortError;
use crate::sync::{Mutex, lock};
use crate::window::{Window, Workspace};

/// API keys in memory.
#[derive(Debug, Default)]
pub struct KeyTable(Mutex<BTreeMap<KeyDigest, Workspace>>);

impl KeyTable {
    /// From now on `key` is `workspace`'s.
    pub fn insert(&self, key: KeyDigest, workspace: Workspace) {
        lock(&self.0).insert(key, workspace);
    }

    /// From now on `key` is nobody's.
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

/// Burst counters in memory: of each workspace those of its last windows, for requests that are late.
///
/// It knows the time only by the windows that it is asked to count in.
#[derive(Debug, Default)]
pub struct WindowTable(Mutex<BTreeMap<WorkspaceId, Vec<Counter>>>);

#[derive(Clone, Copy, Debug)]
struct Counter {
    window: u64,
    count: u64,
}

#[async_trait]
impl Windows for WindowTable {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let mut table = lock(&self.0);
        let counter = counter(table.entry(window.workspace().clone()).or_default(), window);
        counter.count += 1;
        Ok(counter.count)
    }
}

/// The counter of `window`, moved to the front.
fn counter<'a>(counters: &'a mut Vec<Counter>, window: &Window) -> &'a mut Counter {
    let number = window.number();
    let known = counters.iter().position(|c| c.window == number);
    let at = known.unwrap_or_else(|| {
        if counters.len() >= window.countable_max() {
            counters.remove(in_the_way(counters, window));
        }
        counters.push(Counter { window: number, count: 0 });
        counters.len() - 1
    });
    counters[..=at].rotate_right(1);
    &mut counters[0]
}

/// Which counter makes room for `window`: that of the oldest, which nobody can be late for any more; but where a clock has
/// jumped back, so that others are out of its reach, the one that has not counted for longest.
fn in_the_way(counters: &[Counter], window: &Window) -> usize {
    let reach = window.number().saturating_add(window.countable_max() as u64);
    let oldest = (0..counters.len()).min_by_key(|&at| counters[at].window);
    oldest.filter(|_| counters.iter().all(|c| c.window < reach)).unwrap_or(counters.len() - 1)
}

/// Accounts in memory.
#[derive(Debug, Default)]
pub struct AccountTable(Mutex<BTreeMap<WorkspaceId, Account>>);

impl AccountTable {
    /// Gives `workspace` `credits` more. Errors: [`AccountFault::TooLarge`].
    pub fn grant(&self, workspace: &WorkspaceId, credits: u64) -> Result<(), AccountFault> {
        lock(&self.0).entry(workspace.clone()).or_default().grant(credits)
    }

    /// The totals of `workspace`.
    pub fn balance(&self, workspace: &WorkspaceId) -> Balance {
        lock(&self.0).get(workspace).map(Account::balance).unwrap_or_default()
    }

    /// Tells all accounts that it is `now`, so that holds past their time expire.
    pub fn advance(&self, now: Timestamp) {
        lock(&self.0).values_mut().for_each(|account| account.advance(now));
    }
}

#[async_trait]
impl Credits for AccountTable {
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        let mut accounts = lock(&self.0);
        accounts.entry(hold.workspace.clone()).or_default().hold(hold).map_err(PortError::new)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let mut accounts = lock(&self.0);
        accounts.entry(hold.workspace.clone()).or_default().settle(hold, settlement).map_err(PortError::new)
    }
}

/// A people directory in memory, keyed by the canonical email.
#[derive(Default)]
pub struct Directory(Mutex<BTreeMap<String, ProfileUrl>>);

impl Directory {
    /// From now on `email` is found as `profile`.
    pub fn insert(&self, email: &Email, profile: ProfileUrl) {
        lock(&self.0).insert(email.canonical(), profile);
    }
}

#[async_trait]
impl Resolver for Directory {
    async fn find(&self, email: &Email) -> Result<Option<ProfileUrl>, PortError> {
        Ok(lock(&self.0).get(&email.canonical()).cloned())
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({} people)", lock(&self.0).len())
    }
}
