//! What the documentation of [`Accounts`](enrich_store::Accounts) states, as changes of rows: workspaces,
//! credits and keys. Shares the types of ids and rows with the stores, and no code.
//!
//! An operation returns its result, or each reason for which it can be refused. It then changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::TokenDigest;
use enrich_store::records::{GrantKind, GrantRow, KeyRow, Refund, WorkspaceRow};
use enrich_store::usage::{Day, UsageRow};
use enrich_store::users::{AuditEvent, Link, Role, Session, User, UserId};
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};

use super::steps::By;

/// The result of an operation. A reason begins as the `Debug` of the store's error does.
pub(super) type Answer<T> = Result<T, Vec<String>>;

#[derive(Default)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    pub(super) workspaces: Vec<Workspace>,
    pub(super) keys: Vec<Key>,
    pub(super) lookups: Vec<Lookup>,
    /// The lookups that have paid, by workspace and receipt, and when.
    pub(super) payers: BTreeMap<(WorkspaceId, u8), (LookupId, Timestamp)>,
    /// The free lookups.
    pub(super) free: BTreeMap<(WorkspaceId, Day, KeyId, &'static str), u64>,
    pub(super) users: Vec<User>,
    pub(super) codes: BTreeSet<(UserId, TokenDigest)>,
    pub(super) sessions: Vec<Session>,
    pub(super) links: Vec<Link>,
}

pub(super) struct Workspace {
    pub(super) id: WorkspaceId,
    created_at: Timestamp,
    pub(super) properties: WorkspaceProperties,
    pub(super) grants: Vec<GrantRow>,
    /// Oldest first, without numbers.
    pub(super) events: Vec<AuditEvent>,
}

pub(super) struct Key {
    pub(super) key: ApiKey,
    pub(super) workspace: WorkspaceId,
    form: Option<TokenDigest>,
    /// The expiry before any rotation.
    end: Option<Timestamp>,
    pub(super) row: KeyRow,
}

#[derive(Clone)]
pub(super) struct Lookup {
    pub(super) id: LookupId,
    pub(super) workspace: WorkspaceId,
    pub(super) key: KeyId,
    pub(super) arrived_at: Timestamp,
    /// The credits and the expiry of a hold.
    pub(super) hold: Option<(u64, Timestamp)>,
    pub(super) spent: Option<u64>,
    pub(super) is_removed: bool,
    pub(super) receipt: Option<u8>,
}

/// Refuses an operation for the reasons that apply.
pub(super) fn refuse(reasons: &[(bool, &str)]) -> Answer<()> {
    let reasons = reasons.iter().filter(|(applies, _)| *applies);
    let reasons: Vec<_> = reasons.map(|(_, why)| (*why).to_owned()).collect();
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

impl Model {
    pub(super) fn workspace(&self, id: &WorkspaceId) -> Option<&Workspace> {
        self.workspaces.iter().find(|workspace| workspace.id == *id)
    }

    fn get(&mut self, id: &WorkspaceId) -> &mut Workspace {
        self.workspaces.iter_mut().find(|workspace| workspace.id == *id).unwrap()
    }

    pub(super) fn is_deleted(&self, id: &WorkspaceId) -> bool {
        self.workspace(id).is_some_and(|workspace| workspace.properties.deleted_at.is_some())
    }

    /// Refuses a change of a workspace that does not exist or was deleted.
    pub(super) fn check_live(&self, id: &WorkspaceId) -> Answer<()> {
        let is_deleted = self.is_deleted(id);
        refuse(&[(self.workspace(id).is_none(), "UnknownWorkspace"), (is_deleted, "WorkspaceDeleted")])
    }

    /// Returns whether the author may not change the workspace.
    pub(super) fn forbids(&self, id: &WorkspaceId, by: &By) -> bool {
        by.session.is_some_and(|(digest, is_admin)| {
            let session = self.sessions.iter().find(|session| session.digest == digest);
            let user = session.and_then(|session| self.user(session.user));
            !user.is_some_and(|user| user.workspace == *id && (user.role == Role::Admin || !is_admin))
        })
    }

    pub(super) fn record(&mut self, id: &WorkspaceId, action: &str, subject: impl ToString, by: &By) {
        let (actor, action, at) = (by.name.clone(), action.to_owned(), self.now);
        let (subject, address) = (subject.to_string(), by.address);
        self.get(id).events.push(AuditEvent { number: 0, at, actor, action, subject, address });
    }

    pub(super) fn create_workspace(&mut self, id: &WorkspaceId, credits: u64, by: &By) -> Answer<()> {
        let mut workspaces = self.workspaces.iter();
        let existing = workspaces.find(|other| other.id.as_str().eq_ignore_ascii_case(id.as_str()));
        let (exists, is_same) = (existing.is_some(), existing.is_some_and(|existing| existing.id == *id));
        let is_deleted = existing.is_some_and(|existing| self.is_deleted(&existing.id));
        refuse(&[
            (id.as_str().starts_with("console."), "WorkspaceReserved"),
            (is_deleted, "WorkspaceDeleted"),
            (is_same && !is_deleted, "WorkspaceExists"),
            (exists && !is_same && !is_deleted, "WorkspaceCase"),
        ])?;
        let (id, created_at) = (id.clone(), self.now);
        let properties = WorkspaceProperties {
            quota: Quota::new(500, 60).unwrap(),
            display_name: None,
            low_balance: 0,
            suspended_at: None,
            deleted_at: None,
        };
        let (grants, events) = (Vec::new(), Vec::new());
        self.workspaces.push(Workspace { id: id.clone(), created_at, properties, grants, events });
        self.record(&id, "workspace.created", &id, by);
        if credits > 0 { self.grant(&id, credits, by).map(drop) } else { Ok(()) }
    }

    pub(super) fn balance(&self, id: &WorkspaceId) -> Balance {
        let granted: i64 = self.workspace(id).unwrap().grants.iter().map(|grant| grant.credits).sum();
        let lookups = || self.lookups.iter().filter(|lookup| lookup.workspace == *id);
        let held = lookups().filter_map(|lookup| lookup.hold).map(|(credits, _)| credits).sum();
        let spent = lookups().filter_map(|lookup| lookup.spent).sum();
        let granted = granted.cast_unsigned();
        Balance { granted, available: granted - held - spent, held, spent }
    }

    pub(super) fn row(&self, id: &WorkspaceId) -> Option<WorkspaceRow> {
        let Workspace { id, created_at, properties, .. } = self.workspace(id)?;
        let (balance, properties) = (self.balance(id), properties.clone());
        Some(WorkspaceRow { id: id.clone(), properties, balance, created_at: *created_at })
    }

    pub(super) fn change(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        by: &By,
    ) -> Answer<WorkspaceProperties> {
        self.check_live(id)?;
        let is_valid = |change: &WorkspaceChange<'_>| match change {
            WorkspaceChange::Quota { limit, window_seconds } => {
                *limit != Some(0) && window_seconds.is_none_or(|seconds| (1..=86_400).contains(&seconds))
            }
            _ => true,
        };
        let is_deleted = changes.iter().rev().skip(1).any(|change| *change == WorkspaceChange::Deleted);
        refuse(&[(is_deleted, "WorkspaceDeleted"), (!changes.iter().all(is_valid), "Quota")])?;
        let now = self.now;
        for change in changes {
            let new = &mut self.get(id).properties;
            let old = new.clone();
            let (action, subject) = match *change {
                WorkspaceChange::Quota { limit, window_seconds } => {
                    let limit = limit.unwrap_or(old.quota.limit());
                    let seconds = window_seconds.unwrap_or(old.quota.window_seconds());
                    new.quota = Quota::new(limit, seconds).unwrap();
                    ("workspace.limit_changed", format!("{limit} requests per {seconds} s"))
                }
                WorkspaceChange::LowBalance(credits) => {
                    new.low_balance = credits;
                    ("workspace.low_balance_changed", credits.to_string())
                }
                WorkspaceChange::DisplayName(name) => {
                    new.display_name = name.map(str::to_owned);
                    ("workspace.renamed", name.unwrap_or(id.as_str()).to_owned())
                }
                WorkspaceChange::Suspended(true) => {
                    new.suspended_at = Some(old.suspended_at.unwrap_or(now));
                    ("workspace.suspended", id.to_string())
                }
                WorkspaceChange::Suspended(false) => {
                    new.suspended_at = None;
                    ("workspace.resumed", id.to_string())
                }
                WorkspaceChange::Deleted => {
                    new.deleted_at = Some(now);
                    ("workspace.deleted", id.to_string())
                }
            };
            if *new != old {
                self.record(id, action, subject, by);
            }
        }
        Ok(self.get(id).properties.clone())
    }

    fn add_grant(&mut self, id: &WorkspaceId, kind: GrantKind, credits: i64, reason: &str) {
        let (reason, at) = (reason.to_owned(), self.now);
        self.get(id).grants.push(GrantRow { kind, credits, reason, at });
    }

    pub(super) fn grant(&mut self, id: &WorkspaceId, credits: u64, by: &By) -> Answer<Balance> {
        self.check_live(id)?;
        refuse(&[(credits + self.balance(id).granted > i64::MAX as u64, "Account")])?;
        self.add_grant(id, GrantKind::Grant, credits.cast_signed(), "");
        self.record(id, "credits.granted", credits, by);
        Ok(self.balance(id))
    }

    pub(super) fn adjust(&mut self, id: &WorkspaceId, credits: i64, by: &By) -> Answer<Balance> {
        self.check_live(id)?;
        let Balance { available, granted, held, .. } = self.balance(id);
        let is_overdrawn = credits < 0 && credits.unsigned_abs() > available;
        let overdrawn = |available: u64| format!("Overdrawn {{ available: {available} }}");
        let is_too_large = granted.cast_signed().checked_add(credits).is_none();
        let overdrawn = [overdrawn(available), overdrawn(available + held)];
        refuse(&[(is_overdrawn, &overdrawn[0]), (is_overdrawn, &overdrawn[1]), (is_too_large, "Account")])?;
        self.add_grant(id, GrantKind::Adjustment, credits, "typo");
        self.record(id, "credits.adjusted", format!("{credits:+}: typo"), by);
        Ok(self.balance(id))
    }

    pub(super) fn refunded_at(&self, id: LookupId) -> Option<Timestamp> {
        let mut grants = self.workspaces.iter().flat_map(|workspace| &workspace.grants);
        grants.find(|grant| grant.kind == GrantKind::Refund(id)).map(|grant| grant.at)
    }

    pub(super) fn refund(&mut self, id: LookupId, by: &By) -> Answer<Refund> {
        let spend = self.lookups.iter().find(|lookup| lookup.id == id && !lookup.is_removed);
        let spend = spend.and_then(|lookup| Some((lookup.workspace.clone(), lookup.spent?)));
        let refunded_at = self.refunded_at(id);
        let again =
            format!("AlreadyRefunded {{ lookup_id: {id:?}, at: {:?} }}", refunded_at.unwrap_or_default());
        refuse(&[
            (refunded_at.is_some(), &again),
            (spend.is_none() && refunded_at.is_none(), "UnknownSpend"),
            (spend.as_ref().is_some_and(|(workspace, _)| self.is_deleted(workspace)), "WorkspaceDeleted"),
        ])?;
        let (workspace, credits) = spend.unwrap();
        self.add_grant(&workspace, GrantKind::Refund(id), credits.cast_signed(), "");
        self.payers.retain(|_, (payer, _)| *payer != id);
        self.record(&workspace, "credits.refunded", id, by);
        let balance = self.balance(&workspace);
        Ok(Refund { workspace, credits, balance })
    }

    /// Returns the place and the workspace of a key.
    fn key(&self, id: KeyId) -> Answer<(usize, WorkspaceId)> {
        let n = self.keys.iter().position(|key| key.row.id == id).ok_or(["UnknownKey".to_owned()])?;
        Ok((n, self.keys[n].workspace.clone()))
    }

    /// Returns whether a key can no longer be used, whatever else changes.
    fn has_ended(&self, key: &Key) -> bool {
        let is_expired = key.row.expires_at.is_some_and(|end| end <= self.now);
        is_expired || key.row.revoked_at.is_some() || self.is_deleted(&key.workspace)
    }

    /// Returns whether nodes accept the key.
    pub(super) fn accepts(&self, key: &Key) -> bool {
        let is_suspended = self.workspace(&key.workspace).unwrap().properties.suspended_at.is_some();
        !self.has_ended(key) && key.row.disabled_at.is_none() && !is_suspended
    }

    fn is_used(&self, workspace: &WorkspaceId, form: Option<TokenDigest>) -> bool {
        form.is_some() && self.keys.iter().any(|key| key.workspace == *workspace && key.form == form)
    }

    fn insert_key(
        &mut self,
        key: ApiKey,
        workspace: WorkspaceId,
        form: Option<TokenDigest>,
        end: Option<Timestamp>,
        by: &By,
    ) -> KeyId {
        let row = KeyRow {
            id: key.digest().key_id(),
            label: "till".to_owned(),
            masked: key.masked(),
            created_by: by.name.clone(),
            created_at: self.now,
            last_used_at: None,
            uses: 0,
            expires_at: end,
            initial_expires_at: end,
            disabled_at: None,
            disabled_by: None,
            revoked_at: None,
        };
        self.keys.push(Key { key, workspace, form, end, row });
        self.keys.last().unwrap().row.id
    }

    pub(super) fn create_key(
        &mut self,
        key: ApiKey,
        id: &WorkspaceId,
        form: Option<TokenDigest>,
        end: Option<Timestamp>,
        by: &By,
    ) -> Answer<KeyId> {
        self.check_live(id)?;
        refuse(&[(self.is_used(id, form), "FormUsed"), (self.forbids(id, by), "NotAllowed")])?;
        let test = if ApiKey::is_test(key.reveal()) { ", a test key" } else { "" };
        let key = self.insert_key(key, id.clone(), form, end, by);
        self.record(id, "key.created", format!("{key} (till){test}"), by);
        Ok(key)
    }

    pub(super) fn revoke_key(&mut self, id: KeyId, by: &By) -> Answer<()> {
        let (n, workspace) = self.key(id)?;
        refuse(&[(self.forbids(&workspace, by), "NotAllowed")])?;
        if self.keys[n].row.revoked_at.is_none() && !self.is_deleted(&workspace) {
            self.keys[n].row.revoked_at = Some(self.now);
            self.record(&workspace, "key.revoked", format!("{id} (till)"), by);
        }
        Ok(())
    }

    pub(super) fn enable_key(&mut self, id: KeyId, is_enabled: bool, by: &By) -> Answer<()> {
        let (n, workspace) = self.key(id)?;
        let has_ended = self.has_ended(&self.keys[n]);
        let KeyRow { disabled_at, disabled_by, created_by, .. } = &self.keys[n].row;
        let is_by_other = is_enabled && disabled_by.as_ref().is_some_and(|name| *name != by.name);
        let session = by.session.map(|(session, is_admin)| (session, is_admin || is_by_other));
        let is_forbidden = self.forbids(&workspace, &By { session, ..by.clone() });
        let is_taken_over = disabled_by.as_ref() == Some(created_by) && by.name != *created_by;
        let is_changed = is_enabled != disabled_at.is_none() || !is_enabled && is_taken_over;
        refuse(&[(has_ended, "KeyEnded"), (is_forbidden, "NotAllowed")])?;
        if is_changed {
            let row = &mut self.keys[n].row;
            (row.disabled_at, row.disabled_by) = (!is_enabled).then(|| (self.now, by.name.clone())).unzip();
            let action = if is_enabled { "key.enabled" } else { "key.disabled" };
            self.record(&workspace, action, format!("{id} (till)"), by);
        }
        Ok(())
    }

    pub(super) fn rotate_key(
        &mut self,
        id: KeyId,
        new: ApiKey,
        form: Option<TokenDigest>,
        old_end: Timestamp,
        by: &By,
    ) -> Answer<KeyId> {
        let (n, workspace) = self.key(id)?;
        let (old, end) = (&self.keys[n], self.keys[n].end);
        refuse(&[
            (self.is_used(&workspace, form), "FormUsed"),
            (self.has_ended(old) || old.row.disabled_at.is_some(), "KeyEnded"),
            (self.forbids(&workspace, by), "NotAllowed"),
        ])?;
        let row = &mut self.keys[n].row;
        let new = if row.is_test() { new.into_test() } else { new };
        row.expires_at = Some(row.expires_at.map_or(old_end, |end| end.min(old_end)));
        let creator = By { name: row.created_by.clone(), ..by.clone() };
        let new = self.insert_key(new, workspace.clone(), form, end, &creator);
        self.record(&workspace, "key.rotated", format!("{id} (till) to {new}"), by);
        Ok(new)
    }

    /// Returns the keys of a workspace, oldest first.
    pub(super) fn key_rows(&self, id: &WorkspaceId) -> Vec<KeyRow> {
        let (deleted_at, today) =
            (self.workspace(id).unwrap().properties.deleted_at, Day::from_timestamp(self.now));
        let usage = self.usage(id);
        let row = |Key { row, .. }: &Key| {
            let is_use = |use_: &&UsageRow| use_.key == row.id && use_.day.number() + 30 > today.number();
            let uses = usage.iter().filter(is_use).map(|row| row.lookups).sum();
            KeyRow { uses, revoked_at: row.revoked_at.or(deleted_at), ..row.clone() }
        };
        self.keys.iter().filter(|key| key.workspace == *id).map(row).collect()
    }

    /// Returns all keys of a workspace: those that have not ended, then the others, each newest first.
    pub(super) fn key_order(&self, id: &WorkspaceId) -> Vec<KeyId> {
        let mut keys: Vec<_> = self.keys.iter().rev().filter(|key| key.workspace == *id).collect();
        let has_expired = |row: &KeyRow| row.expires_at.is_some_and(|end| end <= self.now);
        keys.sort_by_key(|key| key.row.revoked_at.is_some() || has_expired(&key.row));
        keys.iter().map(|key| key.row.id).collect()
    }
}
