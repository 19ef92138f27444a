//! The contract for the in-memory stores.

#![allow(clippy::unwrap_used, reason = "a failing operation panics, as the contract requires")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_contract::resolver::ResolverUnderTest;
use enrich_contract::{CreditStore, KeyStore, START, Store, machine};
use enrich_lib::credit::Balance;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::window::{Quota, Workspace};

enrich_contract::store_contract!(open);

mod windows {
    enrich_contract::windows_contract!(super::open_windows);
}

mod resolver {
    enrich_contract::resolver_contract!(super::open_resolver);
}

#[test]
fn random_steps_match_the_model() {
    machine::compare(10_000, open);
}

#[derive(Default)]
struct Memory {
    keys: KeyTable,
    credits: AccountTable,
    quotas: Mutex<BTreeMap<WorkspaceId, Quota>>,
    workspaces: AtomicU32,
}

async fn open() -> Arc<Memory> {
    let memory = Memory::default();
    memory.tick(START).await;
    Arc::new(memory)
}

async fn open_windows() -> (Arc<dyn Windows>, Timestamp) {
    (Arc::new(WindowTable::default()), START)
}

async fn open_resolver() -> ResolverUnderTest {
    let directory = Directory::default();
    let (ada, profile) = (Email::parse("ada@posteo.net").unwrap(), ProfileUrl::from_name("ada").unwrap());
    directory.insert(&ada, profile.clone());
    ResolverUnderTest::new(Arc::new(directory), (ada, profile), Email::parse("nobody@posteo.net").unwrap())
}

#[async_trait]
impl Store for Memory {
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId {
        let n = self.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        self.quotas.lock().unwrap().insert(id.clone(), quota);
        self.credits.grant(&id, credits).unwrap();
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.credits.advance(Duration::from_millis(now.unix_ms()));
    }
}

#[async_trait]
impl KeyStore for Memory {
    fn keys(&self) -> &dyn Keys {
        &self.keys
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        let quota = self.quotas.lock().unwrap()[workspace];
        let workspace = Workspace::new(workspace.clone(), quota).with_test(ApiKey::is_test(key.reveal()));
        self.keys.insert(key.digest(), workspace);
    }

    async fn revoke(&self, key: &ApiKey) {
        self.keys.revoke(&key.digest());
    }
}

#[async_trait]
impl CreditStore for Memory {
    fn credits(&self) -> &dyn Credits {
        &self.credits
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        self.credits.grant(workspace, credits).unwrap();
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let balance = self.credits.balance(workspace);
        assert_eq!(self.credits.available(workspace), Some(balance.available));
        balance
    }
}
