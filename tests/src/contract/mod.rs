//! Rules for the operations of an operator on the stores of this repository.
//!
//! The rules for the ports are in `enrich-contract`. Each rule is an async function that takes a fresh store.
//! A store's test file passes the name of a function that opens one to `operator_contract!`, which generates
//! one `#[test]` per rule.
//!
//! # Layout
//!
//! `admin` operations on keys and grants · `workspaces` changes of workspaces · `grants` adjustments and
//! refunds · `retention` removal of old spends · `usage` · `links` one-time links · `users` users and members
//! · `sessions` passwords, second factors and sessions · `operator` a fixture for the rules about keys, usage
//! and users.

pub mod admin;
pub mod grants;
pub mod links;
mod operator;
pub mod retention;
pub mod sessions;
pub mod usage;
pub mod users;
pub mod workspaces;

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
}

/// Generates the tests of all suites, in a module each. `$open` is the name of a function beside the macro
/// that returns a fresh store (`Arc<impl Administered>`).
#[macro_export]
macro_rules! operator_contract {
    ($open:ident) => {
        $crate::operator_contract! { $open,
            admin admin_contract,
            workspaces workspaces_contract,
            grants grants_contract,
            retention retention_contract,
            usage usage_contract,
            links links_contract,
            users users_contract,
            sessions sessions_contract,
        }
    };
    ($open:ident, $($suite:ident $contract:ident,)*) => {
        $(
            mod $suite {
                $crate::$contract!(super::$open);
            }
        )*
    };
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
    fn every_rule_is_in_the_list_of_its_suite() {
        for (suite, source) in [
            ("admin", include_str!("admin.rs")),
            ("workspaces", include_str!("workspaces.rs")),
            ("grants", include_str!("grants.rs")),
            ("retention", include_str!("retention.rs")),
            ("usage", include_str!("usage.rs")),
            ("links", include_str!("links.rs")),
            ("users", include_str!("users.rs")),
            ("sessions", include_str!("sessions.rs")),
        ] {
            let missing = enrich_contract::unlisted_rules(source);
            assert!(missing.is_empty(), "the list of {suite} lacks {missing:?}");
        }
    }
}
