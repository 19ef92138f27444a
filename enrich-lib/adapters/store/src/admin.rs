//! Administrative operations on workspaces, keys and credits.

use std::num::NonZeroI64;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

use crate::actor::Actor;
use crate::error::StoreError;
use crate::records::{Audit, GrantRow, KeyRow, NewKey, Refund, SpendPage, WorkspaceRow};
use crate::usage::{Day, UsageRow};
use crate::workspace::WorkspaceChange;

/// Administrative operations of a store. They can run while servers use the same data.
///
/// Each operation is atomic. A cancelled call may or may not have taken effect. Operations on a workspace
/// that does not exist return [`StoreError::UnknownWorkspace`], and changes of a deleted workspace
/// [`StoreError::WorkspaceDeleted`].
#[async_trait]
pub trait Admin: Send {
    /// Creates a workspace with `credits`. The operator is the author of the events `workspace.created` and,
    /// unless `credits` is 0, `credits.granted`.
    ///
    /// Errors: [`StoreError::WorkspaceExists`], or [`StoreError::WorkspaceDeleted`] if it was deleted;
    /// [`StoreError::Account`] if `credits` is too large.
    async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns all workspaces, by name.
    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError>;

    /// Returns a workspace. The held credits are up to one second old.
    async fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError>;

    /// Returns the workspaces with fewer available credits than their threshold, by name, without deleted
    /// ones.
    async fn low_balances(&mut self) -> Result<Vec<WorkspaceRow>, StoreError>;

    /// Changes a workspace and returns its new row. All changes are made, or none. Each has an event, unless
    /// it changes nothing. They apply to all nodes within a second; lookups in progress are completed.
    ///
    /// Errors: [`StoreError::Quota`].
    async fn change_workspace(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        actor: &Actor<'_>,
    ) -> Result<WorkspaceRow, StoreError>;

    /// Grants `credits` to `workspace` and returns its new balance. The operator is the author of the event
    /// `credits.granted`, whose subject is the number of credits.
    ///
    /// Errors: [`StoreError::UnknownWorkspace`], [`StoreError::Account`] if the sum is too large.
    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError>;

    /// Corrects the granted credits of `workspace` by `credits`, and returns its new balance. The event is
    /// `credits.adjusted`.
    ///
    /// A negative number withdraws available credits, including those that serving processes have in memory.
    /// It waits for these up to [`WITHDRAWAL_TIMEOUT`](crate::credits::WITHDRAWAL_TIMEOUT), in addition to
    /// the time of its transactions.
    ///
    /// Errors: [`StoreError::Overdrawn`], [`StoreError::NotWithdrawn`], [`StoreError::Account`] if the sum is
    /// too large.
    async fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, StoreError>;

    /// Refunds the credits of a lookup. The spend itself stays. The event is `credits.refunded`.
    ///
    /// Errors: [`StoreError::UnknownSpend`], [`StoreError::AlreadyRefunded`].
    async fn refund(
        &mut self,
        lookup_id: LookupId,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Refund, StoreError>;

    /// Returns the balance of `workspace`. The held credits are up to one second old.
    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError>;

    /// Returns the grants, adjustments and refunds of `workspace`, oldest first.
    async fn grants(&mut self, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, StoreError>;

    /// Stores a new key and returns its id. The event is `key.created`.
    ///
    /// Errors: [`StoreError::TooManyKeys`].
    async fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, StoreError>;

    /// Returns the keys of `workspace`, oldest first, with their uses in the days up to `today`.
    async fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, StoreError>;

    /// Returns up to `limit` keys of `workspace` after the first `offset`: those that work or are disabled at
    /// `now`, and then those that have ended, newest first.
    async fn key_page(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<KeyRow>, StoreError>;

    /// Returns a key of `workspace` with its uses up to `today`.
    ///
    /// Errors: [`StoreError::UnknownKey`].
    async fn key(&mut self, workspace: &WorkspaceId, id: KeyId, today: Day) -> Result<KeyRow, StoreError>;

    /// Revokes a key permanently. The event is `key.revoked`. A key that is already revoked keeps its first
    /// revocation date, without another event.
    ///
    /// Errors: [`StoreError::UnknownKey`].
    async fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), StoreError>;

    /// Disables a key, or enables it again. The event is `key.disabled` or `key.enabled`. There is none if
    /// the key is in that state already.
    ///
    /// Errors: [`StoreError::UnknownKey`]; [`StoreError::KeyEnded`] if the key has expired or was revoked.
    async fn set_key_enabled(
        &mut self,
        id: KeyId,
        is_enabled: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Replaces a key by `new`, which has the same workspace, label and expiry, and returns the new id. The
    /// old key expires at `old_expires_at`, unless it expires earlier. The event is `key.rotated`.
    ///
    /// Errors: [`StoreError::UnknownKey`]; [`StoreError::KeyEnded`] if the key is disabled, has expired or
    /// was revoked; [`StoreError::TooManyKeys`].
    async fn rotate_key(
        &mut self,
        id: KeyId,
        new: &ApiKey,
        old_expires_at: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<KeyId, StoreError>;

    /// Returns the usage of `workspace` from the first to the last day, both included, ordered by day, key
    /// and outcome. Lags by up to a second.
    async fn usage(
        &mut self,
        workspace: &WorkspaceId,
        first: Day,
        last: Day,
    ) -> Result<Vec<UsageRow>, StoreError>;

    /// Returns a page of the spends of `workspace`, by lookup id, from `first` (included) to `end`
    /// (excluded). Call it again with [`SpendPage::next`] as `first`.
    async fn spends(
        &mut self,
        workspace: &WorkspaceId,
        first: LookupId,
        end: LookupId,
    ) -> Result<SpendPage, StoreError>;

    /// Removes the oldest spends that arrived before `day`, up to
    /// [`REMOVED_MAX`](crate::records::REMOVED_MAX), and returns their number. If it is 0, there are no more.
    /// Balances, usage and audits stay exact.
    ///
    /// A removed spend is not listed and cannot be refunded, and the store would accept another spend of its
    /// lookup. Spends that the totals do not include yet are kept.
    async fn remove_spends(&mut self, before: Day) -> Result<u64, StoreError>;

    /// Adds up all rows in one snapshot and compares them with the totals.
    async fn audit(&mut self) -> Result<Audit, StoreError>;
}
