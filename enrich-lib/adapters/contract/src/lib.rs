//! The contract of the ports: rules that every implementation of `Keys`, `Windows`, `Credits` and `Resolver`
//! must keep. [`reply`] is that of the interface: the replies that clients may receive.
//!
//! Each rule is a test of its own, which a macro generates. This is the whole test of a store of credits:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use enrich_lib::credit::Balance;
//! # use enrich_lib::model::{Timestamp, WorkspaceId};
//! # use enrich_lib::ports::{Credits, async_trait};
//! # use enrich_lib::window::Quota;
//! use enrich_contract::{CreditStore, START, Store, machine};
//! # use enrich_lib::memory::AccountTable as MyCredits;
//! # #[derive(Default)]
//! # struct MyStore { credits: MyCredits, workspaces: std::sync::atomic::AtomicU32 }
//! # impl MyStore { fn next(&self) -> u32 { self.workspaces.fetch_add(1, std::sync::atomic::Ordering::Relaxed) } }
//!
//! #[async_trait]
//! impl Store for MyStore {
//!     async fn create_workspace(&self, _: Quota, credits: u64) -> WorkspaceId {
//!         let id = format!("workspace-{}", self.next()).parse().unwrap();
//!         self.credits.grant(&id, credits).unwrap();
//!         id
//!     }
//!     async fn tick(&self, now: Timestamp) {
//!         self.credits.advance(Duration::from_millis(now.unix_ms()));
//!     }
//! }
//!
//! #[async_trait]
//! impl CreditStore for MyStore {
//!     fn credits(&self) -> &dyn Credits { &self.credits }
//!     async fn grant(&self, workspace: &WorkspaceId, credits: u64) { self.credits.grant(workspace, credits).unwrap(); }
//!     async fn balance(&self, workspace: &WorkspaceId) -> Balance { self.credits.balance(workspace) }
//! }
//!
//! async fn open() -> Arc<MyStore> {
//!     let store = Arc::<MyStore>::default();
//!     store.tick(START).await;
//!     store
//! }
//!
//! enrich_contract::credits_contract!(open);
//! enrich_contract::concurrency_contract!(open);
//! enrich_contract::receipts_contract!(open);
//!
//! // In a test of its own: random steps, compared with a model.
//! machine::compare(100, open);
//! ```
//!
//! A rule that fails names the promise that the store breaks, for example
//! `the contract of credits is broken: expired hold returns its credits`. Several suites in one file need a
//! module each, because names of rules may repeat: [`store_contract!`] generates those of a store of keys and
//! credits. The random steps are always a test of their own.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod concurrency;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod credits;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod durability;
pub mod fixture;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod keys;
pub mod machine;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod receipts;
pub mod reply;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod resolver;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod shared;
#[allow(missing_docs, reason = "the name of a rule states it")]
pub mod windows;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::window::Quota;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// A store under test. A failing operation panics.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a workspace with an unused name and makes it visible to the node.
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId;

    /// Advances the store's clock to `now`, which begins at [`START`]: expires holds and makes the operator's
    /// changes visible.
    async fn tick(&self, now: Timestamp);
}

/// A store of keys.
#[async_trait]
pub trait KeyStore: Store {
    /// Returns the port for keys. If several nodes share the store, each call returns that of another node.
    fn keys(&self) -> &dyn Keys;

    /// Creates a key for `workspace`. It is visible to the node after the next [`tick`](Store::tick).
    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey);

    /// Revokes a key. The change is visible to the node after the next [`tick`](Store::tick).
    async fn revoke(&self, key: &ApiKey);

    /// Returns whether the store has test keys, to which [`ApiKey::is_test`] applies. Otherwise, their rule passes.
    fn has_test_keys(&self) -> bool {
        true
    }
}

/// A store of credits.
#[async_trait]
pub trait CreditStore: Store {
    /// Returns the port for credits. If several nodes share the store, each call returns that of another node.
    fn credits(&self) -> &dyn Credits;

    /// Grants credits to `workspace`. They are visible to the node after the next [`tick`](Store::tick).
    async fn grant(&self, workspace: &WorkspaceId, credits: u64);

    /// Returns the current balance of `workspace`. A store that keeps it in several places first checks that
    /// they agree.
    async fn balance(&self, workspace: &WorkspaceId) -> Balance;
}

/// A store whose data survives its process.
#[async_trait]
pub trait Durable: KeyStore + CreditStore {
    /// Crashes the process and returns the store of a new process on the same data. A loss of power, which also needs
    /// what was written to be synchronized, has no rule.
    async fn crash(self: Arc<Self>) -> Arc<Self>;
}

/// The time at which every test starts.
pub const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// The maximum time of a rule and of a random step. A store that has lost a lock would wait forever. A call that blocks
/// the thread of its test is not interrupted.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// Runs one rule's test on a new store. Tasks that the store spawns end with the test.
///
/// Panics with the promise that is broken: the name of the rule.
pub fn run<S>(suite: &str, rule: &str, open: impl AsyncFnOnce() -> S, test: impl AsyncFnOnce(S)) {
    if let Err(broken) = check(suite, rule, open, test) {
        panic!("{broken}");
    }
}

/// Runs one rule's test on a new store. The error is the promise that is broken, with the panic of the test.
#[doc(hidden)]
pub fn check<S>(
    suite: &str,
    rule: &str,
    open: impl AsyncFnOnce() -> S,
    test: impl AsyncFnOnce(S),
) -> Result<(), String> {
    check_within(TIME_MAX, suite, rule, open, test)
}

fn check_within<S>(
    time_max: Duration,
    suite: &str,
    rule: &str,
    open: impl AsyncFnOnce() -> S,
    test: impl AsyncFnOnce(S),
) -> Result<(), String> {
    let runtime = runtime();
    let test = async {
        let store = open().await;
        timeout(time_max, test(store)).await
    };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
    // Dropping it would wait for tasks that block their threads.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let broken = match ended {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(_)) => format!("the test did not end within {time_max:?}"),
        Err(panic) => message(&*panic).to_owned(),
    };
    Err(format!("the contract of {suite} is broken: {}: {broken}", rule.replace('_', " ")))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the test panicked")
}

/// Returns the number in the variable `STORE_MACHINE_CASES`, or else `default`.
#[doc(hidden)]
pub fn cases(default: u32) -> u32 {
    std::env::var("STORE_MACHINE_CASES").map_or(default, |cases| cases.parse().unwrap())
}

/// Creates a multi-threaded runtime, so that concurrent operations run in parallel.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// Generates the tests of a store of keys and credits: the modules `keys`, `credits`, `concurrency` and
/// `receipts`, and `durability` for a `durable` store. Write a test for the random steps of
/// [`machine`](crate::machine).
///
/// `$open` is the name of a function beside the macro that returns a fresh store: `Arc<impl KeyStore +
/// CreditStore>`, or `Arc<impl Durable>`.
#[macro_export]
macro_rules! store_contract {
    (durable $open:ident) => {
        $crate::store_contract!($open);
        mod durability {
            $crate::durability_contract!(super::$open);
        }
    };
    ($open:ident) => {
        mod keys {
            $crate::keys_contract!(super::$open);
        }
        mod credits {
            $crate::credits_contract!(super::$open);
        }
        mod concurrency {
            $crate::concurrency_contract!(super::$open);
        }
        mod receipts {
            $crate::receipts_contract!(super::$open);
        }
    };
}

/// Generates one test per rule, or returns the `broken` promises. Use the macro of a suite instead, which lists all
/// its rules.
#[doc(hidden)]
#[macro_export]
macro_rules! rules {
    ($suite:ident, (broken $open:expr), $($rule:ident)*) => {
        [$($crate::check(stringify!($suite), stringify!($rule), $open, $crate::$suite::$rule)),*]
            .into_iter()
            .filter_map(Result::err)
            .collect::<Vec<String>>()
    };
    ($suite:ident, ($open:expr), $($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                $crate::run(stringify!($suite), stringify!($rule), $open, $crate::$suite::$rule);
            }
        )*
    };
}

/// Returns the rules in the source of a suite that are missing from its macro. They would never run.
///
/// Panics if the source is not that of a suite.
#[doc(hidden)]
pub fn unlisted_rules(source: &str) -> Vec<&str> {
    let (list, rules) = source.split_once("#[macro_export]").unwrap().1.split_once("\n}\n").unwrap();
    let names = rules.split("pub async fn ").skip(1).map(|rule| rule.split(['(', '<']).next().unwrap());
    names.filter(|name| !list.split_whitespace().any(|word| word == *name)).collect()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn rule_that_does_not_end_is_broken() {
        let check =
            check_within(Duration::from_millis(1), "credits", "some_rule", async || (), |()| pending());
        assert_eq!(
            check.unwrap_err(),
            "the contract of credits is broken: some rule: the test did not end within 1ms"
        );
    }

    #[test]
    fn every_rule_is_in_the_list_of_its_suite() {
        for (suite, source) in [
            ("keys", include_str!("keys.rs")),
            ("credits", include_str!("credits.rs")),
            ("concurrency", include_str!("concurrency.rs")),
            ("receipts", include_str!("receipts.rs")),
            ("durability", include_str!("durability.rs")),
            ("windows", include_str!("windows.rs")),
            ("shared", include_str!("shared.rs")),
            ("resolver", include_str!("resolver.rs")),
        ] {
            let missing = super::unlisted_rules(source);
            assert!(missing.is_empty(), "the list of {suite} lacks {missing:?}");
        }
    }
}
