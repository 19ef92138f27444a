//! The store contract for the SQLite adapter.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use enrich_contract::{CreditStore, Durable, KeyStore, START, Store, machine};
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, accounts, complete};
use enrich_store::records::NewKey;
use enrich_store::usage::UsageCounter;
use enrich_store::{Accounts, Actor, Clocks, Ledger as _};
use enrich_tests::contract::Administered;
use tempfile::TempDir;
use tokio::task::JoinHandle;

enrich_contract::store_contract!(durable open);
enrich_tests::operator_contract!(open);

#[test]
fn random_steps_match_the_model() {
    machine::compare_with_crashes(120, open);
}

#[test]
fn random_operations_match_the_model() {
    enrich_tests::contract::machine::compare(180, open);
}

/// A serving ledger, and an operator with a separate connection, as from another process.
struct Sqlite {
    operator: Mutex<Accounts>,
    ledger: Ledger,
    writer: JoinHandle<()>,
    files: TempDir,
    workspaces: AtomicU32,
}

async fn open() -> Arc<Sqlite> {
    Arc::new(Sqlite::serve(TempDir::new().unwrap(), 0))
}

impl Sqlite {
    fn serve(files: TempDir, workspaces: u32) -> Self {
        let mut writer = None;
        let dir = DataDir::create(files.path()).unwrap();
        let spawn = |work| writer = Some(tokio::spawn(work));
        let ledger = Ledger::open(&dir, Clocks::simulated(START), || Duration::ZERO, spawn).unwrap();
        Self {
            operator: Mutex::new(accounts(&dir).unwrap()),
            ledger,
            writer: writer.unwrap(),
            files,
            workspaces: AtomicU32::new(workspaces),
        }
    }

    fn operator(&self) -> MutexGuard<'_, Accounts> {
        self.operator.lock().unwrap()
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId {
        let n = self.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        complete(self.operator().create_workspace(&id, quota, credits, START)).unwrap();
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.ledger.refresh_keys().unwrap();
        self.ledger.tick(Clocks::simulated(now)).await.unwrap();
    }
}

#[async_trait]
impl KeyStore for Sqlite {
    fn keys(&self) -> &dyn Keys {
        &self.ledger
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        let new = NewKey::new(workspace, "test", key);
        complete(self.operator().create_key(&new, &Actor::operator(START))).unwrap();
    }

    async fn revoke(&self, key: &ApiKey) {
        complete(self.operator().revoke_key(key.digest().key_id(), &Actor::operator(START))).unwrap();
    }
}

#[async_trait]
impl CreditStore for Sqlite {
    fn credits(&self) -> &dyn Credits {
        &self.ledger
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        complete(self.operator().grant(workspace, credits, START)).unwrap();
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let balance = self.ledger.balance(workspace).unwrap();
        let on_disk = complete(self.operator().balance(workspace)).unwrap();
        assert_eq!(on_disk.spent, balance.spent, "a spend that counts is on the disk");
        assert!(
            complete(self.operator().audit()).unwrap().reconciles(),
            "each spend is in the totals and the usage"
        );
        balance
    }
}

#[async_trait]
impl Administered for Sqlite {
    async fn accounts(&self) -> Accounts {
        enrich_sqlite::accounts(&DataDir::open(self.files.path()).unwrap()).unwrap()
    }

    fn usage(&self) -> &UsageCounter {
        self.ledger.usage()
    }
}

#[async_trait]
impl Durable for Sqlite {
    async fn crash(self: Arc<Self>) -> Arc<Self> {
        let Self { operator, ledger, writer, files, workspaces, .. } = Arc::into_inner(self).unwrap();
        writer.abort();
        let _ = writer.await;
        drop((operator, ledger));
        Arc::new(Self::serve(files, workspaces.into_inner()))
    }
}
