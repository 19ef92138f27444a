//! Rules for the operations of an operator on the stores of this repository.
//!
//! The rules for the ports are in `enrich-contract`. Each rule is an async function that takes a fresh store.
//! A store's test file passes the name of a function that opens one to `operator_contract!`, which generates
//! one `#[test]` per rule.
//!
//! # Layout
//!
//! `machine` and `people` random operations, compared with models · `rules` limits and operations at the same
//! time · `operator` a fixture for the rules.

pub mod machine;
mod operator;
pub mod people;
pub mod rules;

use async_trait::async_trait;
use enrich_contract::{CreditStore, KeyStore};
pub use enrich_contract::{START, run};
use enrich_store::Accounts;
use enrich_store::usage::UsageCounter;

/// A store with all operations of an operator, and with users of the web application.
#[async_trait]
pub trait Administered: KeyStore + CreditStore {
    /// Opens a connection of an operator, as from another process.
    async fn accounts(&self) -> Accounts;

    /// Returns the node's counter of free lookups.
    fn usage(&self) -> &UsageCounter;

    /// Returns the nodes that serve the data. The first one's [`tick`](enrich_contract::Store::tick) is that of
    /// all.
    fn nodes(&self) -> Vec<&Self>
    where
        Self: Sized,
    {
        vec![self]
    }
}

/// Generates one test per rule. Use the macro of a suite instead, which lists all its rules.
#[doc(hidden)]
#[macro_export]
macro_rules! rules {
    ($suite:ident, $open:expr, $($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                $crate::contract::run(stringify!($suite), stringify!($rule), $open, $crate::contract::$suite::$rule);
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_rule_is_listed() {
        let missing = enrich_contract::unlisted_rules(include_str!("rules.rs"));
        assert!(missing.is_empty(), "the list lacks {missing:?}");
    }
}
