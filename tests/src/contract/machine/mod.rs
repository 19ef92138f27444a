//! Random operations of operators, users and lookups, by two nodes where a store has several, and crashes:
//! after each one, its result and all rows are those of a model.
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

use enrich_contract::Durable;
use enrich_store::TokenDigest;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Builder;

use self::objects::Machine;
use self::rows::Lines;
use self::steps::Step;
use crate::contract::Administered;

/// Runs random sequences of steps on new stores. The variable `STORE_MACHINE_CASES` replaces the number of `cases`.
///
/// Panics with the shortest sequence after which the store differs from the model.
pub fn compare<S: Administered + Durable>(cases: u32, open: impl AsyncFn() -> Arc<S>) {
    let cases = std::env::var("STORE_MACHINE_CASES").map_or(cases, |cases| cases.parse().unwrap());
    // No seed files: write a separate test for each sequence that fails.
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 40, cases, ..Default::default() };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let compared = TestRunner::new(config).run(&steps::steps(), |steps| {
        runtime.block_on(async {
            let mut machine = Machine::new(open().await).await;
            for step in steps::prelude().into_iter().chain(steps) {
                machine = machine.take(step).await?;
            }
            Ok(())
        })
    });
    if let Err(difference) = compared {
        panic!("the store differs from the model: {difference}");
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
        self.apply(&step).await.map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
        for user in before.into_iter().filter(|user| self.model.user(user.id) != Some(user)) {
            self.earlier.insert(user.id, user);
        }
        self.check(&step).await?;
        Ok(self)
    }

    /// Compares all rows, and what each node accepts.
    async fn check(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.tick().await;
        for (n, node) in self.store.nodes().into_iter().enumerate() {
            for key in &self.model.keys {
                let found = node.keys().find(&key.key.digest()).await.unwrap();
                let found = found.map(|workspace| (workspace.id, workspace.quota, workspace.is_test));
                let quota = self.model.workspace(&key.workspace).unwrap().properties.quota;
                let expected =
                    self.model.accepts(key).then(|| (key.workspace.clone(), quota, key.row.is_test()));
                prop_assert_eq!(found, expected, "{} on node {} after {:?}", key.row.id, n, step);
            }
            for workspace in &self.model.workspaces {
                let (found, expected) =
                    (node.balance(&workspace.id).await, self.model.balance(&workspace.id));
                prop_assert_eq!(found, expected, "{} on node {} after {:?}", workspace.id, n, step);
            }
        }
        let Self { accounts, model, workspaces, .. } = self;
        let latest = |digests: &[TokenDigest]| digests[digests.len().saturating_sub(3)..].to_vec();
        let (links, sessions) = (latest(&self.links), latest(&self.sessions));
        let Lines(expected) = Lines::expected(model, workspaces, &links, &sessions);
        let Lines(found) = Lines::read(accounts, model, workspaces, &links, &sessions).await.unwrap();
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
        };
        let (missing, wrong) = (only(&expected, &found), only(&found, &expected));
        prop_assert!(
            missing.is_empty() && wrong.is_empty(),
            "after {step:?}: {wrong:#?} instead of {missing:#?}"
        );
        prop_assert!(expected == found, "after {step:?}: {found:#?} is in another order or number");
        let audit = accounts.audit().await.unwrap();
        prop_assert!(audit.reconciles(), "after {step:?}: {audit:?}");
        Ok(())
    }
}
