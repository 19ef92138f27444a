//! The store contract: what the ports promise beyond their signatures, as sentences.
//!
//! Each sentence is an async function that is handed a fresh store. A store's test file names its way to open one, and
//! each suite's macro makes a `#[test]` of every sentence:
//!
//! ```text
//! mod credits {
//!     enrich_tests::credits_contract!(super::open);
//! }
//! ```
//!
//! # Layout
//!
//! `keys` · `credits` · `crowd` many at once · `durability` what a crash leaves · `windows` · `shared` windows of several
//! nodes · `model` random steps, compared with [`Account`](enrich_lib::credit::Account) · `desk` what the sentences about
//! credits are written with.

pub mod credits;
pub mod crowd;
mod desk;
pub mod durability;
pub mod keys;
pub mod model;
pub mod shared;
pub mod windows;

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::window::Quota;
use tokio::runtime::{Builder, Runtime};

/// A store under test: its ports, and what an operator does beside them. A step that fails panics.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The keys, as a host asks for them.
    fn keys(&self) -> &dyn Keys;

    /// The credits, as a host asks for them.
    fn credits(&self) -> &dyn Credits;

    /// Makes a workspace of a name that the store has not seen, and lets the host see it.
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId;

    /// Files a key of `workspace`, to be seen by the host after the next tick.
    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey);

    /// Revokes a key, to be seen by the host after the next tick.
    async fn revoke(&self, key: &ApiKey);

    /// Gives `workspace` more credits, to be seen by the host after the next tick.
    async fn grant(&self, workspace: &WorkspaceId, credits: u64);

    /// The totals of `workspace` at this moment. A store that shows them in several places compares these first.
    async fn balance(&self, workspace: &WorkspaceId) -> Balance;

    /// Tells the store that it is `now`, as a host does: holds expire, and what the operator did is seen.
    async fn tick(&self, now: Timestamp);
}

/// A store that outlives its process.
#[async_trait]
pub trait Durable: Store {
    /// Loses what a crash loses, and comes back.
    async fn crash(self: Arc<Self>) -> Arc<Self>;
}

/// The moment at which every sentence begins.
pub const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// Runs one sentence on a new store. A store may spawn tasks: they end with the sentence.
pub fn run<S>(open: impl AsyncFnOnce() -> S, sentence: impl AsyncFnOnce(S)) {
    runtime().block_on(async { sentence(open().await).await });
}

/// Several threads, so that what is said to happen at once does.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// A test of each sentence. Use the macro of a suite: it knows all of its sentences.
#[doc(hidden)]
#[macro_export]
macro_rules! sentences {
    ($suite:ident, $open:expr, $($sentence:ident)*) => {
        $(
            #[test]
            fn $sentence() {
                $crate::contract::run($open, $crate::contract::$suite::$sentence);
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A sentence that its suite's macro forgets would be kept by nobody.
    #[test]
    fn every_sentence_is_in_the_list_of_its_suite() {
        for (suite, source) in [
            ("keys", include_str!("keys.rs")),
            ("credits", include_str!("credits.rs")),
            ("crowd", include_str!("crowd.rs")),
            ("durability", include_str!("durability.rs")),
            ("windows", include_str!("windows.rs")),
            ("shared", include_str!("shared.rs")),
        ] {
            let (list, sentences) =
                source.split_once("#[macro_export]").unwrap().1.split_once("\n}\n").unwrap();
            let names = sentences.split("pub async fn ").skip(1).map(|f| f.split(['(', '<']).next().unwrap());
            let forgotten: Vec<_> =
                names.filter(|name| !list.split_whitespace().any(|word| word == *name)).collect();
            assert!(forgotten.is_empty(), "{suite} forgets {forgotten:?}");
        }
    }
}
