//! The four ports: the interfaces to the stores and the resolver.
//!
//! Each method is one atomic operation; the arithmetic stays in the library. An implementation returns a
//! value or fails with a [`PortError`]. The transition that receives the error determines the HTTP status. An
//! error must not contain an email or a key.
//!
//! # Write a port
//!
//! The [guide](crate::guide::port) has an example. The crate `enrich-contract` tests an implementation: the
//! stores of this repository pass the same rules.
//!
//! | method | repeated call | dropped future | time | a wrong implementation |
//! |---|---|---|---|---|
//! | [`Keys::find`] | reads, and changes nothing | has no effect | none | one that caches a revoked key too long keeps it valid |
//! | [`Windows::count`] | counts again | may have counted | the window's | one that loses a count admits more than the limit |
//! | [`Credits::hold`] | same outcome, held once | may have held, until the hold expires | the store's | one without expiry loses the credits of each lost lookup |
//! | [`Credits::settle`] | same result, settled once | does not withdraw the spend | the store's | one that returns an error for a spend that is stored later bills a 500 |
//! | [`Resolver::find`] | may ask a vendor again | must stop | its own | one that trusts a weak match discloses another person |
//!
//! The library calls each method at most once per lookup, never repeats a call, and sets no timeout. A port
//! that can wait limits its own time, except for a spend. Unless the program is built with `panic = "abort"`, a port
//! that panics has failed, so [`Credits::settle`] must not panic after it has stored a spend. No clock is passed:
//! [`Window`] and [`Hold`] contain the arrival of the lookup and their length.

pub use async_trait::async_trait;

use std::sync::Arc;

use crate::credit::{Hold, HoldOutcome, Settlement};
use crate::key::KeyDigest;
use crate::model::{LookupId, WorkspaceId};
use crate::query::Query;
use crate::refusal::PortError;
use crate::resolver::Answer;
use crate::window::{Window, Workspace};

/// Finds the workspace of an API key. A failure results in 500 `server_error`.
///
/// A gateway with keys of another format sets a [`KeyFormat`](crate::key::KeyFormat): this port receives the
/// digest of such a key, too. A gateway that has authenticated a request already passes its [`Workspace`]
/// instead, and this port is not called: see
/// [`Service::for_workspace`](crate::drive::Service::for_workspace).
#[async_trait]
pub trait Keys: Send + Sync {
    /// Returns the workspace of a key, or `None` if the key is unknown or revoked (specification 5.5).
    ///
    /// The workspace of a test key has [`is_test`](Workspace::is_test) set. Otherwise, the lookups of the key are
    /// billed.
    ///
    /// Reads only. A result may be cached as long as a revoked key may stay valid, which is at most a second
    /// in the stores of this repository. Every change of a workspace's limit takes effect by the
    /// [`Workspace`] that this returns.
    ///
    /// An implementation that creates state for unknown keys lets clients without a key fill its memory.
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError>;
}

/// Counts requests. A failure results in 503 `rate_limit_unavailable`, and the lookup is not executed.
#[async_trait]
pub trait Windows: Send + Sync {
    /// Counts one more request in `window` and returns the new count, starting at 1.
    ///
    /// The operation must be atomic, so that no two requests receive the same count. It is not idempotent: a
    /// repeated call counts again, and a dropped one may have counted. An implementation therefore does not
    /// repeat a count whose outcome is unknown, but fails.
    ///
    /// The counter must be kept until a correct clock reaches [`Window::expires_at`]. A counter that restarts
    /// earlier would admit the full limit again. After this time, it must be removed, so that idle workspaces
    /// take no memory.
    ///
    /// A store that several nodes share and that has a clock fails the count of a window that opens more than
    /// 10 s in the future. The node's clock is fast then, and the other nodes count in an earlier window.
    async fn count(&self, window: &Window) -> Result<u64, PortError>;
}

/// Holds and settles credits. A failed hold and a failed spend result in 500 `server_error`.
///
/// Both operations are idempotent by lookup id and behave like [`crate::memory::AccountTable`]: a hold is
/// granted once until it ends, and a settlement that returned `Ok` returns `Ok` again while its spend is
/// kept. A store needs no memory of holds that have ended, because [`Settlement::without_hold`] decides by
/// the spend. At every moment, the credits granted are those available, held and spent. A store keeps amounts up
/// to [`i64::MAX`] exactly.
///
/// A hold of a workspace that the store does not have is refused or fails.
///
/// Lookup ids are unique. A store may refuse one that another workspace has used, or keep both apart. No call
/// succeeds by the credits of another workspace.
#[async_trait]
pub trait Credits: Send + Sync {
    /// Holds credits, if the workspace has enough. Dropping the future may leave the hold in place until the store
    /// ends it, at the latest when it expires.
    ///
    /// A hold with a lookup id that is held already returns the outcome of the first one and holds nothing
    /// more. It fails if the number of credits differs. The check and the hold must be one atomic operation;
    /// otherwise, concurrent lookups spend the same credits.
    ///
    /// A hold that is not settled expires [`Hold::ttl`] after it was placed, by the store's clock, and its
    /// credits are available again. [`Hold::placed_at`] is by the clock of the node, which may be wrong. The
    /// store has to do this itself, for example at the next hold of the workspace: the library does not advance
    /// time.
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError>;

    /// Settles a hold.
    ///
    /// A spend is durable when this returns `Ok`. When it returns an error, nothing was spent, and nothing
    /// will be: the lookup results in a 500, which promises that. While the outcome is unknown, for example
    /// because the disk does not respond, the future is pending. Dropping it does not withdraw the spend.
    ///
    /// A repeated settlement of a hold returns the result of the first one and changes nothing. A spend of a
    /// hold that has expired fails, as does one of another workspace, or of more than was held. The rest of a
    /// spend is available again.
    ///
    /// A lookup that has ended may hold again, or be refused if it has spent. Its second spend is the first one
    /// repeated: it takes nothing, and all that it held is available again.
    ///
    /// # Receipts
    ///
    /// A spend of a hold with a [receipt](Hold::receipt) keeps the receipt, in the same transaction, with its
    /// lookup. Receipts are unique by workspace and kept for [`RECEIPT_TTL`](crate::receipt::RECEIPT_TTL) by the
    /// store's clock. While another lookup's receipt is kept, the spend ends its hold, takes nothing and returns
    /// that lookup; a [hold](Self::hold) is granted and takes no credits. If the receipt is gone when such a hold
    /// is spent, the spend fails. In any other case, this returns `None`: the repeated spend of a lookup returns
    /// it, too, even if the lookup was refunded and another one has paid for its receipt since.
    ///
    /// A store that keeps no receipts ignores them: see [`Credits::keeps_receipts`].
    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError>;

    /// Returns whether the store keeps receipts. Otherwise, a request with an idempotency key is a 400, as without
    /// [`Policy::receipts`](crate::lookup::Policy::receipts): it could be charged twice. What wraps a store forwards
    /// this.
    fn keeps_receipts(&self) -> bool {
        false
    }

    /// Returns the available credits of a workspace after a hold, for the header `Credits-Available`, or `None`
    /// if the store cannot return them without waiting. No reply then has the header, as by default.
    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        let _ = workspace;
        None
    }
}

/// Finds people. A failure results in 502 `lookup_error`, and the hold is released.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the profile of the person behind [`Query::email`], or an answer without one if there is no
    /// trusted match.
    ///
    /// The future must stop its work when it is dropped. It must complete well before
    /// [`Policy::hold_ttl`](crate::lookup::Policy::hold_ttl) ends; a spend after that fails, and the lookup
    /// is a 500.
    async fn find(&self, query: &Query) -> Result<Answer, PortError>;
}

#[async_trait]
impl<T: Keys + ?Sized> Keys for Arc<T> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        (**self).find(key).await
    }
}

#[async_trait]
impl<T: Windows + ?Sized> Windows for Arc<T> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        (**self).count(window).await
    }
}

#[async_trait]
impl<T: Credits + ?Sized> Credits for Arc<T> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        (**self).hold(hold).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        (**self).settle(hold, settlement).await
    }

    fn keeps_receipts(&self) -> bool {
        (**self).keeps_receipts()
    }

    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        (**self).available(workspace)
    }
}

#[async_trait]
impl<T: Resolver + ?Sized> Resolver for Arc<T> {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        (**self).find(query).await
    }
}
