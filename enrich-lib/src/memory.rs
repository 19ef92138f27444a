//! The ports in memory: for tests, simulations and examples, and the host's windows on one node.

use std::{fmt, iter, mem};

use async_trait::async_trait;
use rustc_hash::FxHashMap;

use crate::by_workspace::{ByWorkspace, Map};
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
pub struct KeyTable(Mutex<FxHashMap<KeyDigest, Workspace>>);

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

/// Burst counters in memory: of each workspace those of its last windows, for requests that are late. Workspaces that
/// are silent are forgotten in the end.
///
/// It knows the time only by the windows that it is asked to count in. A clock that jumps far ahead and comes back may find
/// counters forgotten.
#[derive(Debug, Default)]
pub struct WindowTable(ByWorkspace<Counters>);

/// Of one workspace: the counter that counted last, and the others in the order in which they did. Most have no others.
#[derive(Debug)]
struct Counters {
    last: Counter,
    others: Box<[Counter]>,
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    window: u64,
    count: u64,
    forget_at: Timestamp,
}

#[async_trait]
impl Windows for WindowTable {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let mut table = self.0.lock(window.workspace());
        let counters = match table.get_mut(window.workspace()) {
            Some(counters) => counters,
            None => {
                make_room(&mut table, window);
                table.entry(window.workspace().clone()).or_insert(Counters::new(window))
            }
        };
        if counters.last.window != window.number() {
            counters.turn_to(window);
        }
        counters.last.count += 1;
        Ok(counters.last.count)
    }
}

/// Before the table grows, it forgets whom it can. Then there is room for as many as are left: it does not look at all
/// of them again soon.
fn make_room(table: &mut Map<Counters>, window: &Window) {
    if table.len() == table.capacity() {
        let now = window.opens_at(); // it is later, but how much nobody says
        table.retain(|_, counters| counters.all().any(|counter| now < counter.forget_at));
        table.reserve(table.len() + 1);
    }
}

impl Counters {
    fn new(window: &Window) -> Self {
        let last = Counter { window: window.number(), count: 0, forget_at: window.forget_at() };
        Self { last, others: Box::default() }
    }

    fn all(&self) -> impl Iterator<Item = &Counter> {
        iter::once(&self.last).chain(&self.others)
    }

    /// The counter of `window` is the next to count.
    fn turn_to(&mut self, window: &Window) {
        let mut others = mem::take(&mut self.others).into_vec();
        others.insert(0, self.last);
        let number = window.number();
        self.last = match others.iter().position(|counter| counter.window == number) {
            Some(known) => others.remove(known),
            None => {
                if others.len() >= window.countable_max() {
                    others.remove(in_the_way(&others, window));
                }
                Self::new(window).last
            }
        };
        self.others = others.into();
    }
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
pub struct AccountTable(ByWorkspace<Account>);

impl AccountTable {
    /// Gives `workspace` `credits` more. Errors: [`AccountFault::TooLarge`].
    pub fn grant(&self, workspace: &WorkspaceId, credits: u64) -> Result<(), AccountFault> {
        self.with(workspace, |account| account.grant(credits))
    }

    /// The totals of `workspace`.
    pub fn balance(&self, workspace: &WorkspaceId) -> Balance {
        self.0.lock(workspace).get(workspace).map(Account::balance).unwrap_or_default()
    }

    /// Tells all accounts that it is `now`, so that holds past their time expire.
    pub fn advance(&self, now: Timestamp) {
        self.0.shards().for_each(|mut shard| shard.values_mut().for_each(|account| account.advance(now)));
    }

    fn with<T>(&self, workspace: &WorkspaceId, act: impl FnOnce(&mut Account) -> T) -> T {
        let mut accounts = self.0.lock(workspace);
        match accounts.get_mut(workspace) {
            Some(account) => act(account),
            None => act(accounts.entry(workspace.clone()).or_default()),
        }
    }
}

#[async_trait]
impl Credits for AccountTable {
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        self.with(&hold.workspace, |account| account.hold(hold)).map_err(PortError::new)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.with(&hold.workspace, |account| account.settle(hold, settlement)).map_err(PortError::new)
    }
}

/// A people directory in memory, keyed by the canonical email.
#[derive(Default)]
pub struct Directory(Mutex<FxHashMap<String, ProfileUrl>>);

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
