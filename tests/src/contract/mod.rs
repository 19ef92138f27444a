//! The store contract: the behaviour that every implementation of a port must have.
//!
//! Each rule is an async function that takes a fresh store. A store's test file passes a function that opens one to the
//! macro of each suite, which generates one `#[test]` per rule:
//!
//! ```text
//! mod credits {
//!     enrich_tests::credits_contract!(super::open);
//! }
//! ```
//!
//! # Layout
//!
//! `keys` · `credits` · `concurrency` concurrent lookups · `durability` the state after a crash · `windows` · `shared` windows
//! that several nodes share · `admin` operations on keys and grants · `workspaces` changes of workspaces · `grants` adjustments and refunds · `retention` removal of old spends · `usage` · `links` one-time links · `users` users and
//! members · `sessions` passwords, second factors and sessions · `model` random steps, compared with
//! [`AccountTable`](enrich_lib::memory::AccountTable) · `fixture` a fixture for the rules about credits · `operator` a fixture for the
//! rules about keys, usage and users.

pub mod admin;
pub mod concurrency;
pub mod credits;
pub mod durability;
mod fixture;
pub mod grants;
pub mod keys;
pub mod links;
pub mod model;
mod operator;
pub mod retention;
pub mod sessions;
pub mod shared;
pub mod usage;
pub mod users;
pub mod windows;
pub mod workspaces;

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::window::Quota;
use enrich_store::Accounts;
use enrich_store::usage::UsageCounter;
use tokio::runtime::{Builder, Runtime};

/// A store under test: its ports and the operations of an operator. A failing operation panics.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the port for keys.
    fn keys(&self) -> &dyn Keys;

    /// Returns the port for credits.
    fn credits(&self) -> &dyn Credits;

    /// Creates a workspace with an unused name and makes it visible to the node.
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId;

    /// Creates a key for `workspace`. It is visible to the node after the next [`tick`](Store::tick).
    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey);

    /// Revokes a key. The change is visible to the node after the next [`tick`](Store::tick).
    async fn revoke(&self, key: &ApiKey);

    /// Grants credits to `workspace`. They are visible to the node after the next [`tick`](Store::tick).
    async fn grant(&self, workspace: &WorkspaceId, credits: u64);

    /// Returns the current balance of `workspace`. A store that keeps it in several places first checks that they agree.
    async fn balance(&self, workspace: &WorkspaceId) -> Balance;

    /// Advances the store's clock to `now`: expires holds and makes the operator's changes visible.
    async fn tick(&self, now: Timestamp);
}

/// A store whose data survives its process.
#[async_trait]
pub trait Durable: Store {
    /// Crashes the process and returns the store of a new process on the same data.
    async fn crash(self: Arc<Self>) -> Arc<Self>;
}

/// A store with all operations of an operator, and with users of the web application.
#[async_trait]
pub trait Administered: Store {
    /// Opens a connection of an operator, as from another process.
    async fn accounts(&self) -> Box<dyn Accounts>;

    /// Returns the node's counter of free lookups.
    fn usage(&self) -> &UsageCounter;
}

/// The time at which every test starts.
pub const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// Runs one rule's test on a new store. Tasks that the store spawns end with the test.
pub fn run<S>(open: impl AsyncFnOnce() -> S, rule: impl AsyncFnOnce(S)) {
    runtime().block_on(async { rule(open().await).await });
}

/// Creates a multi-threaded runtime, so that concurrent operations run in parallel.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// Generates one test per rule. Use the macro of a suite instead, which lists all its rules.
#[doc(hidden)]
#[macro_export]
macro_rules! rules {
    ($suite:ident, $open:expr, $($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                $crate::contract::run($open, $crate::contract::$suite::$rule);
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A rule that is missing from its suite's macro would never run.
    #[test]
    fn every_rule_is_in_the_list_of_its_suite() {
        for (suite, source) in [
            ("keys", include_str!("keys.rs")),
            ("credits", include_str!("credits.rs")),
            ("concurrency", include_str!("concurrency.rs")),
            ("durability", include_str!("durability.rs")),
            ("windows", include_str!("windows.rs")),
            ("shared", include_str!("shared.rs")),
            ("admin", include_str!("admin.rs")),
            ("workspaces", include_str!("workspaces.rs")),
            ("grants", include_str!("grants.rs")),
            ("retention", include_str!("retention.rs")),
            ("usage", include_str!("usage.rs")),
            ("links", include_str!("links.rs")),
            ("users", include_str!("users.rs")),
            ("sessions", include_str!("sessions.rs")),
        ] {
            let (list, rules) = source.split_once("#[macro_export]").unwrap().1.split_once("\n}\n").unwrap();
            let names = rules.split("pub async fn ").skip(1).map(|f| f.split(['(', '<']).next().unwrap());
            let missing: Vec<_> =
                names.filter(|name| !list.split_whitespace().any(|word| word == *name)).collect();
            assert!(missing.is_empty(), "the list of {suite} lacks {missing:?}");
        }
    }
}
