//! Ports with a typical bug each. The contract names the promise that they break.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use enrich_contract::resolver::ResolverUnderTest;
use enrich_contract::{CreditStore, KeyStore, START, Store};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::memory::KeyTable;
use enrich_lib::model::{LookupId, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows, async_trait};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Window, Workspace};

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

/// Credits in a map. A hold that is never settled stays held.
#[derive(Default)]
struct WithoutExpiry {
    accounts: Mutex<HashMap<WorkspaceId, Account>>,
    workspaces: AtomicU32,
}

#[derive(Default)]
struct Account {
    granted: u64,
    held: BTreeMap<LookupId, u64>,
    spent: BTreeMap<LookupId, u64>,
}

impl Account {
    fn balance(&self) -> Balance {
        let sum = |credits: &BTreeMap<LookupId, u64>| credits.values().sum::<u64>();
        let (held, spent) = (sum(&self.held), sum(&self.spent));
        Balance { granted: self.granted, available: self.granted - held - spent, held, spent }
    }
}

#[async_trait]
impl Credits for WithoutExpiry {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let mut accounts = self.accounts.lock().unwrap();
        let account = accounts.entry(hold.workspace.clone()).or_default();
        match account.held.get(&hold.lookup_id) {
            Some(held) if *held == hold.credits => return Ok(HoldOutcome::Granted),
            Some(_) => return Err(PortError::new("another hold")),
            None if hold.credits > account.balance().available => {
                let shortage = Shortage::of(account.balance().held);
                return Ok(HoldOutcome::Insufficient(shortage));
            }
            None => {}
        }
        account.held.insert(hold.lookup_id, hold.credits);
        Ok(HoldOutcome::Granted)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let mut accounts = self.accounts.lock().unwrap();
        let Account { held, spent, .. } = accounts.entry(hold.workspace.clone()).or_default();
        let known = spent.get(&hold.lookup_id).copied();
        let credits = match settlement {
            Settlement::Spend(credits) => credits,
            Settlement::Release => 0,
        };
        match held.get(&hold.lookup_id) {
            Some(held) if credits > *held => Err(PortError::new("more than held")),
            Some(_) if credits > 0 && known.is_none() => {
                held.remove(&hold.lookup_id);
                spent.insert(hold.lookup_id, credits);
                Ok(None)
            }
            is_held => {
                let is_release = is_held.is_some() && credits == 0;
                held.remove(&hold.lookup_id);
                if !is_release {
                    settlement.without_hold(known).map_err(PortError::new)?;
                }
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl Store for WithoutExpiry {
    async fn create_workspace(&self, _: Quota, credits: u64) -> WorkspaceId {
        let id = next_workspace(&self.workspaces);
        self.grant(&id, credits).await;
        id
    }

    async fn tick(&self, _: Timestamp) {}
}

#[async_trait]
impl CreditStore for WithoutExpiry {
    fn credits(&self) -> &dyn Credits {
        self
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        self.accounts.lock().unwrap().entry(workspace.clone()).or_default().granted += credits;
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        self.accounts.lock().unwrap().entry(workspace.clone()).or_default().balance()
    }

    fn keeps_receipts(&self) -> bool {
        false
    }
}

#[test]
fn credits_without_expiry_lose_the_credits_of_lost_lookups() {
    let open = async || Arc::new(WithoutExpiry::default());
    let rules = ["expired hold returns its credits", "expired hold cannot be spent", "time does not go back"];
    assert_broken(enrich_contract::credits_contract!(broken open), "credits", &rules);
    // Nothing else is wrong with it.
    assert_broken(enrich_contract::concurrency_contract!(broken open), "concurrency", &[]);
}

/// Keys with a cache that a revocation does not clear. All of them are live keys.
#[derive(Default)]
struct Cached {
    keys: KeyTable,
    cache: Mutex<HashMap<KeyDigest, Workspace>>,
    quotas: Mutex<HashMap<WorkspaceId, Quota>>,
    workspaces: AtomicU32,
}

#[async_trait]
impl Keys for Cached {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        if let Some(workspace) = self.cache.lock().unwrap().get(key) {
            return Ok(Some(workspace.clone()));
        }
        let found = self.keys.find(key).await?;
        if let Some(workspace) = &found {
            self.cache.lock().unwrap().insert(*key, workspace.clone());
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
    }
}

#[test]
fn cached_keys_stay_valid_after_their_revocation_and_test_keys_are_billed() {
    let open = async || Arc::new(Cached::default());
    let rules = ["revoked key is not found", "test key is found as one"];
    assert_broken(enrich_contract::keys_contract!(broken open), "keys", &rules);
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
        tokio::task::yield_now().await;
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

/// A resolver that fails without a match, and keeps the email of the last query between two steps.
struct Careless {
    known: (Email, ProfileUrl),
    last: Mutex<Option<Email>>,
}

#[async_trait]
impl Resolver for Careless {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        *self.last.lock().unwrap() = Some(query.email.clone());
        tokio::task::yield_now().await;
        match self.last.lock().unwrap().as_ref() == Some(&self.known.0) {
            true => Ok(Some(self.known.1.clone()).into()),
            false => Err(PortError::new("no match")),
        }
    }
}

#[test]
fn careless_resolver_fails_without_a_match_and_mixes_up_answers() {
    let email = |email| Email::parse(email).unwrap();
    let open = async || {
        let known = (email("ada.marlowe@gmail.com"), ProfileUrl::from_name("ada-marlowe").unwrap());
        let resolver = Arc::new(Careless { known: known.clone(), last: Mutex::default() });
        ResolverUnderTest::new(resolver, known, email("nobody.here@gmail.com"))
    };
    let rules = ["person without a profile is no failure", "concurrent lookups get their own answers"];
    assert_broken(enrich_contract::resolver_contract!(broken open), "resolver", &rules);
}
