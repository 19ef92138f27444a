//! Two administrative operations at the same time have the result of one after the other.

use std::mem::discriminant;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_sqlite::DataDir;
use enrich_store::accounts::{CopyError, Origin};
use enrich_store::records::NewKey;
use enrich_store::usage::Day;
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor, StoreError, TokenDigest};
use enrich_tests::contract::START;
use enrich_tests::eventually;

use super::world::World;

/// An operation on a workspace or its key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Revoke,
    Disable,
    Enable,
    Rotate,
    Limit,
    Suspend,
    Delete,
    RemoveSpends,
    /// Copies the accounts of a data directory.
    CopyAccounts,
}

use Operation::{CopyAccounts, Delete, Disable, Enable, Limit, RemoveSpends, Revoke, Rotate, Suspend};

/// Every two of them are executed at the same time.
const OPERATIONS: [Operation; 9] =
    [Revoke, Disable, Enable, Rotate, Limit, Suspend, Delete, RemoveSpends, CopyAccounts];

/// The result of an operation that the server has ended.
const TIMED_OUT: &str = "timed out";

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_operations_have_the_result_of_an_order() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for (n, first) in OPERATIONS.into_iter().enumerate() {
        for second in OPERATIONS.into_iter().skip(n) {
            let is_disabled = [first, second].contains(&Enable);
            let (mut expected, mut shop) = (Vec::new(), Shop::create(&world, is_disabled).await);
            for [earlier, later] in [[first, second], [second, first]] {
                let results = [shop.execute(earlier).await, shop.execute(later).await];
                expected.push(shop.outcome([earlier, later], results).await);
                shop = Shop::create(&world, is_disabled).await;
            }
            let mut outcome = shop.execute_both(&world, first, second).await;
            // On a busy machine, a statement may wait for longer than its timeout.
            for _ in 0..3 {
                if !outcome.contains(TIMED_OUT) {
                    break;
                }
                shop = Shop::create(&world, is_disabled).await;
                outcome = shop.execute_both(&world, first, second).await;
            }
            if !expected.contains(&outcome) {
                wrong.push(format!("{first:?} and {second:?}: {outcome} instead of {expected:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A node whose clock is days behind adds it.
#[tokio::test(flavor = "multi_thread")]
async fn spend_that_is_added_during_a_removal_is_in_the_sums() {
    let world = World::new().await;
    let mut removing = Shop::create(&world, false).await;
    let (id, key, accounts) = (removing.id.clone(), removing.key, world.admin().await);
    let mut shop = Shop { id, key, accounts };
    world
        .sql(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
             CREATE TRIGGER waits AFTER INSERT ON removed_spends EXECUTE FUNCTION wait()",
        )
        .await;
    let lock = world.begin("SELECT pg_advisory_xact_lock(1)").await;
    let removed = tokio::spawn(async move { removing.execute(RemoveSpends).await });
    let is_waiting = async || world.postgres.waiting_statements(&world.database).await == 1;
    eventually("the removal waits after its sums", is_waiting).await;
    shop.spend(&world, -1).await;
    lock.batch_execute("COMMIT").await.unwrap();
    removed.await.unwrap().unwrap();
    assert!(shop.accounts.audit().await.unwrap().reconciles());
}

/// A workspace with two spends and a key.
struct Shop {
    id: WorkspaceId,
    key: KeyId,
    accounts: Accounts,
}

/// Copies a new directory with one workspace to the database.
async fn copy(accounts: &mut Accounts) -> Result<(), StoreError> {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let n = COPIES.fetch_add(1, Ordering::Relaxed);
    let files = tempfile::tempdir().unwrap();
    let mut source = enrich_sqlite::accounts(&DataDir::create(files.path()).unwrap()).unwrap();
    let id = format!("copy-{n}").parse().unwrap();
    source.create_workspace(&id, Quota::default(), 10, START).await.unwrap();
    let origin = Origin { id: u128::from(n).to_be_bytes(), is_copied: false };
    match accounts.copy_from(&mut source, origin, START, &mut |_, _| {}, async |_| Ok(())).await {
        Ok(_) => Ok(()),
        Err(CopyError::Store(error) | CopyError::Commit(error)) => Err(error),
        Err(refused) => panic!("{refused}"),
    }
}

fn new_key(seed: &str) -> ApiKey {
    let digest = TokenDigest::from_token(seed.as_bytes());
    let mut bytes = digest.as_bytes().iter().copied().cycle();
    ApiKey::generate(|| bytes.next().unwrap())
}

impl Shop {
    async fn create(world: &World<'_>, is_disabled: bool) -> Self {
        let mut accounts = world.admin().await;
        let (operator, n) = (Actor::operator(START), accounts.workspaces().await.unwrap().len());
        let id: WorkspaceId = format!("shop-{n}").parse().unwrap();
        accounts.create_workspace(&id, Quota::default(), 10, START).await.unwrap();
        let key = new_key(id.as_str());
        let key = accounts.create_key(&NewKey::new(&id, "till", &key), &operator).await.unwrap();
        if is_disabled {
            accounts.set_key_enabled(key, false, &operator).await.unwrap();
        }
        let shop = Self { id, key, accounts };
        for n in 0..2 {
            shop.spend(world, n).await;
        }
        shop
    }

    /// Adds the `n`-th spend of the workspace, by the order of their lookups.
    async fn spend(&self, world: &World<'_>, n: i32) {
        let (id, key) = (&self.id, self.key.number());
        let spend = format!(
            "UPDATE balance SET available = available - 1 WHERE workspace = (SELECT rowid FROM workspace WHERE id = '{id}');
             INSERT INTO credit_spend SELECT decode(lpad(to_hex(2 * rowid + {n}), 32, '0'), 'hex'), rowid, {key}, 1, 0
                 FROM workspace WHERE id = '{id}';
             INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
                 SELECT 0, rowid, 0, {key}, 1, 1, 0 FROM workspace WHERE id = '{id}'"
        );
        world.sql(&spend).await;
    }

    async fn execute(&mut self, operation: Operation) -> Result<(), StoreError> {
        let Self { id, key, accounts } = self;
        let (operator, key) = (Actor::operator(START), *key);
        let change = match operation {
            Revoke => return accounts.revoke_key(key, &operator).await,
            Disable | Enable => return accounts.set_key_enabled(key, operation == Enable, &operator).await,
            Rotate => {
                let (new, end) = (new_key(&format!("{id} new")), START + Duration::from_secs(60));
                return accounts.rotate_key(key, &new, None, end, &operator).await.map(drop);
            }
            CopyAccounts => return copy(accounts).await,
            RemoveSpends => return accounts.remove_spends(Day::from_timestamp(START)).await.map(drop),
            Limit => WorkspaceChange::Quota { limit: Some(9), window_seconds: None },
            Suspend => WorkspaceChange::Suspended(true),
            Delete => WorkspaceChange::Deleted,
        };
        accounts.change_workspace(id, &[change], &operator).await.map(drop)
    }

    /// Executes two operations, of which neither can continue before both have begun.
    async fn execute_both(&mut self, world: &World<'_>, first: Operation, second: Operation) -> String {
        let lock =
            world.begin("SELECT FROM workspace FOR UPDATE; SELECT FROM removed_until FOR UPDATE").await;
        let mut executing = Vec::new();
        for operation in [first, second] {
            let (id, key, accounts) = (self.id.clone(), self.key, world.admin().await);
            let mut shop = Self { id, key, accounts };
            executing.push(tokio::spawn(async move { shop.execute(operation).await }));
            let waiting =
                async || world.postgres.waiting_statements(&world.database).await == executing.len() as i64;
            eventually("the operation waits for the lock", waiting).await;
        }
        lock.batch_execute("COMMIT").await.unwrap();
        let [one, other] = [executing.remove(0).await.unwrap(), executing.remove(0).await.unwrap()];
        self.outcome([first, second], [one, other]).await
    }

    /// Returns what is visible afterwards, with the result of each operation.
    async fn outcome(&mut self, operations: [Operation; 2], results: [Result<(), StoreError>; 2]) -> String {
        let Self { id, accounts, .. } = self;
        let result = |result: &Result<(), StoreError>| match result {
            Err(StoreError::Backend(_)) => TIMED_OUT.to_owned(),
            result => format!("{:?}", result.as_ref().err().map(discriminant)),
        };
        let mut results = [0, 1].map(|n| format!("{:?} {}", operations[n], result(&results[n])));
        results.sort();
        let keys = accounts.keys(id, Day::default()).await.unwrap();
        let keys: Vec<_> = keys.iter().map(|key| (key.state(START), key.expires_at)).collect();
        let events = accounts.audit_log(id, None, 100).await.unwrap();
        let events: Vec<_> = events.into_iter().map(|event| event.action).collect();
        let workspace = accounts.workspace(id).await.unwrap();
        let (properties, balance) = (workspace.properties, workspace.balance);
        let is_sound = accounts.audit().await.unwrap().reconciles();
        format!("{results:?} {keys:?} {events:?} {properties:?} {balance:?}, sound: {is_sound}")
    }
}
