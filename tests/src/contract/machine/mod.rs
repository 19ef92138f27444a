//! Random operations of operators, users and lookups, by two nodes where a store has several, and crashes:
//! after each one, its result and the rows that it changes are those of a model, and at the end all rows.
//!
//! # Layout
//!
//! `model`, `lookups`, `users` what the operations do · `rows` what can be read · `steps` the operations that
//! are drawn · `objects` what they name · `apply` runs one.

mod apply;
mod lookups;
mod model;
mod objects;
mod rows;
mod steps;
mod users;

use std::sync::Arc;
use std::time::Duration;

use enrich_contract::{Durable, KeyStore};
use enrich_lib::credit::Balance;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Workspace;
use enrich_store::TokenDigest;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use self::objects::Machine;
use self::rows::Lines;
use self::steps::Step;
use crate::contract::Administered;

/// Runs random sequences of steps on new stores. The variable `STORE_MACHINE_CASES` replaces the number of `cases`.
///
/// Panics with the shortest sequence after which the store differs from the model.
pub fn compare<S: Administered + Durable>(cases: u32, open: impl AsyncFn() -> Arc<S>) {
    let cases = enrich_contract::cases(cases);
    // No seed files: write a separate test for each sequence that fails.
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 40, cases, ..Default::default() };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let compared = TestRunner::new(config).run(&steps::steps(), |steps| {
        runtime.block_on(async {
            let mut machine = Machine::new(open().await).await;
            for step in steps::prelude().into_iter().chain(steps).chain(steps::finale()) {
                machine = machine.take(step).await?;
            }
            machine.check(Scope::All).await
        })
    });
    match compared {
        Ok(()) => {}
        // One step a line, and the difference last: a long output loses its middle.
        Err(TestError::Fail(difference, steps)) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("the store differs from the model after\n{}\n{difference}", steps.join("\n"));
        }
        Err(aborted) => panic!("{aborted}"),
    }
}

impl<S: Administered + Durable> Machine<S> {
    async fn take(mut self, step: Step) -> Result<Self, TestCaseError> {
        let before = self.model.users.clone();
        if let Step::Retain(seconds, _) = step {
            self.store = self.store.crash().await;
            self.model.wait(Duration::from_secs(seconds));
            self.tick().await;
        }
        let failed = |error| TestCaseError::fail(format!("{step:?}: {error}"));
        self.apply(&step).await.map_err(failed)?;
        for user in before.into_iter().filter(|user| self.model.user(user.id) != Some(user)) {
            self.earlier.insert(user.id, user);
        }
        self.check(Scope::Changed).await.map_err(failed)?;
        Ok(self)
    }

    /// Compares the workspaces that the last step has changed in the model, and others in turn. All of them
    /// after each step take PostgreSQL three times as long.
    async fn check(&mut self, scope: Scope) -> Result<(), TestCaseError> {
        self.tick().await;
        self.turn = (self.turn + 1) % (self.workspaces.len() + 1);
        let is_in_scope = |n| scope == Scope::All || self.turn == n;
        for (n, id) in self.workspaces.iter().enumerate() {
            let balance = self.model.workspace(id).map(|_| self.model.balance(id));
            let expected = (balance, Lines::expected(&self.model, id));
            if is_in_scope(n) || self.expected[n] != expected {
                self.check_nodes(id, balance).await?;
                expected.1.compare(&Lines::read(&mut self.accounts, id, self.model.now).await.unwrap())?;
                self.expected[n] = expected;
            }
        }
        if is_in_scope(self.workspaces.len()) {
            let Self { accounts, model, .. } = self;
            let latest = |digests: &[TokenDigest]| digests[digests.len().saturating_sub(3)..].to_vec();
            let (links, sessions) = (latest(&self.links), latest(&self.sessions));
            let found = Lines::read_of_all(accounts, model, &links, &sessions).await.unwrap();
            Lines::expected_of_all(model, &links, &sessions).compare(&found)?;
            let audit = accounts.audit().await.unwrap();
            prop_assert!(audit.reconciles(), "{audit:?}");
        }
        Ok(())
    }

    /// Compares the balance of a workspace and its keys on each node.
    async fn check_nodes(&self, id: &WorkspaceId, balance: Option<Balance>) -> Result<(), TestCaseError> {
        let Some(workspace) = self.model.workspace(id) else { return Ok(()) };
        for (n, node) in self.store.nodes().into_iter().enumerate() {
            for key in self.model.keys.iter().filter(|key| key.workspace == *id) {
                let found = find(node, &key.key.digest()).await;
                let found = found.map(|workspace| (workspace.id, workspace.quota, workspace.is_test));
                let quota = workspace.properties.quota;
                let expected = self.model.accepts(key).then(|| (id.clone(), quota, key.row.is_test()));
                prop_assert_eq!(found, expected, "{} on node {}", key.row.id, n);
            }
            prop_assert_eq!(Some(node.balance(id).await), balance, "{} on node {}", id, n);
        }
        Ok(())
    }
}

/// Finds a key. A node that could not read the changes of keys for some time fails, also on a busy machine.
async fn find(node: &impl KeyStore, key: &KeyDigest) -> Option<Workspace> {
    let found = async {
        loop {
            match node.keys().find(key).await {
                Ok(found) => return found,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    timeout(Duration::from_secs(20), found).await.unwrap()
}

/// The rows to compare.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Changed,
    All,
}
