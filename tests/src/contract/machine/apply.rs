//! Runs one operation on a store and on the model, and compares the results.

use std::fmt::Debug;
use std::time::Duration;

use enrich_contract::Durable;
use enrich_lib::credit::{Balance, Hold, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::observe::{Ending, LookupEvent};
use enrich_lib::receipt::Receipt;
use enrich_lib::refusal::Refusal;
use enrich_lib::window::Quota;
use enrich_store::records::{NewKey, Refund};
use enrich_store::usage::Day;
use enrich_store::users::{Link, Renewal, Session, Totp};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{StoreError, TokenDigest};
use proptest::prelude::*;

use super::lookups::without_holds;
use super::model::{Answer, Lookup};
use super::objects::Machine;
use super::steps::{self, Author, By, Step};
use crate::contract::Administered;

/// Returns the `n`-th recovery code of each user.
fn code(n: usize) -> TokenDigest {
    TokenDigest::from_token(&[n as u8])
}

fn form_token(form: Option<u8>) -> Option<TokenDigest> {
    form.map(|form| TokenDigest::from_token(&[form, 0, 0]))
}

/// Compares a result with that of the model.
fn same<T: Debug>(result: Result<T, StoreError>, expected: Answer<T>) -> Result<(), TestCaseError> {
    match (result, expected) {
        (Ok(result), Ok(expected)) => prop_assert_eq!(format!("{result:?}"), format!("{expected:?}")),
        (Err(error), Err(reasons)) => {
            let error = format!("{error:?}");
            prop_assert!(reasons.iter().any(|reason| error.starts_with(reason)), "{error} {reasons:?}");
        }
        (result, expected) => prop_assert!(false, "{result:?} instead of {expected:?}"),
    }
    Ok(())
}

impl<S: Administered + Durable> Machine<S> {
    fn hold_of(&self, lookup: &Lookup, credits: u64, ttl: Duration) -> Hold {
        let mut hold = Hold::new(lookup.id, lookup.workspace.clone(), credits);
        (hold.key, hold.ttl, hold.placed_at) = (lookup.key, ttl, lookup.arrived_at);
        hold.receipt = lookup.receipt.map(|n| Receipt::from_bytes([n; 16]));
        hold
    }

    async fn hold(
        &mut self,
        node: usize,
        key: usize,
        credits: u64,
        ttl: u64,
        receipt: Option<u8>,
        days: u64,
    ) -> Result<(), TestCaseError> {
        let (now, key, ttl) = (self.model.now, self.key(key), Duration::from_secs(ttl));
        let arrived_at = now - Duration::from_secs(days * 86_400);
        let mut random = [0; 10];
        random[8..].copy_from_slice(&self.next().to_be_bytes());
        let mut accepted = self.model.keys.iter().filter(|key| self.model.accepts(key));
        let Some(found) = accepted.find(|accepted| accepted.row.id == key) else { return Ok(()) };
        let (id, workspace, hold) =
            (LookupId::new(arrived_at, random), found.workspace.clone(), Some((credits, now + ttl)));
        let (spent, is_removed) = (None, false);
        let lookup = Lookup { id, workspace, key, arrived_at, hold, spent, is_removed, receipt };
        let outcome = self.node(node).credits().hold(&self.hold_of(&lookup, credits, ttl)).await;
        prop_assert_eq!(outcome.unwrap(), self.model.hold(lookup));
        Ok(())
    }

    async fn settle(&mut self, node: usize, n: usize, settlement: Settlement) -> Result<(), TestCaseError> {
        let lookup = self.model.lookups.get(n).filter(|lookup| !lookup.is_removed).cloned();
        let Some(lookup) = lookup else { return Ok(()) };
        let credits = if let Settlement::Spend(credits) = settlement { credits } else { 0 };
        let hold = self.hold_of(&lookup, 1, Duration::ZERO);
        let settled = self.node(node).credits().settle(&hold, settlement).await.ok();
        prop_assert_eq!(settled, self.model.settle(lookup.id, credits), "{:?}", settlement);
        Ok(())
    }

    /// Adjusts credits. Does not withdraw held ones: a store whose nodes have the holds in memory takes them.
    async fn adjust(&mut self, id: &WorkspaceId, credits: i64, by: &By) -> Result<(), TestCaseError> {
        if self.model.workspace(id).is_some() {
            let Balance { available, held, .. } = self.model.balance(id);
            if credits < 0 && (available + 1..=available + held).contains(&credits.unsigned_abs()) {
                return Ok(());
            }
        }
        let (actor, amount) = (by.actor(self.model.now), credits.try_into().unwrap());
        let adjusted = self.accounts.adjust(id, amount, "typo", &actor).await;
        let expected = self.model.adjust(id, credits, by);
        same(adjusted.map(without_holds), expected.map(without_holds))
    }

    /// Counts free lookups that arrived this number of days ago, and two that are none: without a key, and billed.
    fn count_free(&mut self, node: usize, n: usize, days: u64) {
        let (id, arrived_at) = (self.key(n), self.model.now - Duration::from_secs(86_400 * days));
        let Some(key) = self.model.keys.iter().find(|key| key.row.id == id) else { return };
        let workspace = key.workspace.clone();
        let limited = Ending::Refused(Refusal::RateLimited);
        for (key, ending, credits) in [
            (Some(id), Ending::NotFound, 0),
            (Some(id), limited, 0),
            (None, limited, 0),
            (Some(id), Ending::Found, 1),
        ] {
            let mut event = LookupEvent::new(LookupId::new(arrived_at, [9; 10]), ending);
            (event.workspace, event.key, event.credits_spent) = (Some(&workspace), key, credits);
            self.node(node).usage().record(&event);
        }
        for outcome in ["not_found", "rate_limited"] {
            *self
                .model
                .free
                .entry((workspace.clone(), Day::from_timestamp(arrived_at), id, outcome))
                .or_default() += 1;
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm an operation")]
    pub(super) async fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.model.now;
        let operator = self.by(Author::Operator);
        match *step {
            Step::CreateWorkspace(w, credits) => {
                let id = self.workspaces[w].clone();
                let created = self.accounts.create_workspace(&id, Quota::default(), credits, now).await;
                same(created, self.model.create_workspace(&id, credits, &operator))
            }
            Step::Change(w, ref changes, author) => {
                let (id, by) = (self.workspaces[w].clone(), self.by(author));
                let changed = self.accounts.change_workspace(&id, changes, &by.actor(now)).await;
                same(changed.map(|row| row.properties), self.model.change(&id, changes, &by))
            }
            Step::Grant(w, credits) => {
                let id = self.workspaces[w].clone();
                let granted = self.accounts.grant(&id, credits, now).await;
                same(granted.map(without_holds), self.model.grant(&id, credits, &operator).map(without_holds))
            }
            Step::Adjust(w, credits, author) => {
                let (id, by) = (self.workspaces[w].clone(), self.by(author));
                self.adjust(&id, credits, &by).await
            }
            Step::Refund(n, author) => {
                let by = self.by(author);
                let id = self.model.lookups.get(n).map_or(LookupId::new(now, [9; 10]), |lookup| lookup.id);
                let refunded = self.accounts.refund(id, "", &by.actor(now)).await;
                let result =
                    |refund: Refund| (refund.workspace, refund.credits, without_holds(refund.balance));
                same(refunded.map(result), self.model.refund(id, &by).map(result))
            }
            Step::CreateKey(w, seconds, form, author) => {
                let (id, by, key) = (self.workspaces[w].clone(), self.by(author), self.new_key());
                let (form, end) = (form_token(form), seconds.map(|seconds| self.after(seconds)));
                let new = NewKey { expires_at: end, form: form.as_ref(), ..NewKey::new(&id, "till", &key) };
                let created = self.accounts.create_key(&new, &by.actor(now)).await;
                same(created, self.model.create_key(key, &id, form, end, &by))
            }
            Step::Revoke(n, author) => {
                let (id, by) = (self.key(n), self.by(author));
                let revoked = self.accounts.revoke_key(id, &by.actor(now)).await;
                same(revoked, self.model.revoke_key(id, &by))
            }
            Step::Enable(n, is_enabled, author) => {
                let (id, by) = (self.key(n), self.by(author));
                let enabled = self.accounts.set_key_enabled(id, is_enabled, &by.actor(now)).await;
                same(enabled, self.model.enable_key(id, is_enabled, &by))
            }
            Step::Rotate(n, form, seconds, author) => {
                let (id, by, new, end) = (self.key(n), self.by(author), self.new_key(), self.after(seconds));
                let form = form_token(form);
                let rotated = self.accounts.rotate_key(id, &new, form.as_ref(), end, &by.actor(now)).await;
                let rotated = rotated.map(|key| key.digest().key_id());
                same(rotated, self.model.rotate_key(id, new, form, end, &by))
            }
            Step::Hold(node, key, credits, ttl, receipt) => {
                self.hold(node, key, credits, ttl, receipt, 0).await
            }
            Step::Settle(node, lookup, settlement) => self.settle(node, lookup, settlement).await,
            Step::Bill(node, key, credits, receipt) => {
                let before = self.model.lookups.len();
                self.hold(node, key, credits, 10, receipt, 0).await?;
                self.settle(node + 1, before, Settlement::Spend(credits)).await
            }
            Step::BillLate(n, days, is_deleted) => {
                let (key, before) = (self.key(n), self.model.lookups.len());
                self.hold(0, n, 1, 10, None, days).await?;
                let key = self.model.keys.iter().find(|other| other.row.id == key).unwrap();
                if is_deleted {
                    let (id, change) = (key.workspace.clone(), [WorkspaceChange::Deleted]);
                    let changed = self.accounts.change_workspace(&id, &change, &operator.actor(now)).await;
                    same(changed.map(|row| row.properties), self.model.change(&id, &change, &operator))?;
                    self.tick().await;
                }
                self.count_free(0, n, days);
                self.settle(1, before, Settlement::Spend(1)).await
            }
            Step::Free(node, n) => {
                self.count_free(node, n, 0);
                Ok(())
            }
            Step::Wait(seconds) => {
                self.model.wait(Duration::from_secs(seconds));
                Ok(())
            }
            Step::Retain(_, days) => {
                let day = Day::from_timestamp(now).minus(days);
                same(self.accounts.remove_spends(day).await, Ok(self.model.remove_spends(day)))
            }
            Step::Invite(w, e, purpose, author) => {
                let (workspace, by, digest) = (self.workspaces[w].clone(), self.by(author), self.new_token());
                let (email, expires_at) = (steps::EMAILS[e].parse().unwrap(), self.after(3_600));
                let created_by = by.name.clone();
                let link =
                    Link { digest, workspace, purpose, email, created_by, created_at: now, expires_at };
                self.links.push(digest);
                let created = self.accounts.create_link(&link, &by.actor(now)).await;
                same(created, self.model.create_link(link, &by))
            }
            Step::UseLink(n) => {
                let (digest, by) = (self.link(n), self.by(Author::Link));
                let hash = format!("${}", self.next());
                let used = self.accounts.use_link(&digest, &hash, &by.actor(now)).await;
                let new = used.as_ref().ok().copied().flatten();
                if let Some(user) = new.filter(|user| !self.users.contains(user)) {
                    self.users.push(user);
                }
                same(used, self.model.use_link(digest, &hash, new, &by))
            }
            Step::DeleteInvitation(w, n, author) => {
                let (id, digest, by) = (self.workspaces[w].clone(), self.link(n), self.by(author));
                let deleted = self.accounts.delete_invitation(&id, &digest.id(), &by.actor(now)).await;
                same(deleted, self.model.delete_invitation(&id, digest, &by))
            }
            Step::SetRole(w, n, role, author) => {
                let (id, user, by) = (self.workspaces[w].clone(), self.user(n), self.by(author));
                let set = self.accounts.set_role(&id, user, role, &by.actor(now)).await;
                same(set, self.model.set_role(&id, user, role, &by))
            }
            Step::Remove(w, n, author) => {
                let (id, user, by) = (self.workspaces[w].clone(), self.user(n), self.by(author));
                let removed = self.accounts.remove_user(&id, user, &by.actor(now)).await;
                same(removed, self.model.remove_user(&id, user, &by))
            }
            Step::Password(n, author) => {
                let (user, by, hash) = (self.user(n), self.by(author), format!("${}", self.next()));
                let renewal = self.renewal(user, &by);
                let set = self.accounts.set_password(user, &hash, renewal.as_ref(), &by.actor(now)).await;
                same(set, self.model.set_password(user, &hash, renewal.as_ref(), &by))
            }
            Step::Totp(n, is_enabled, codes, author) => {
                let (user, by, secret) = (self.user(n), self.by(author), vec![self.next() as u8; 20]);
                let totp = is_enabled.then_some(Totp { secret, last_step: 3 });
                let (codes, renewal): (Vec<_>, _) = ((0..codes).map(code).collect(), self.renewal(user, &by));
                let (renewal, actor) = (renewal.as_ref(), by.actor(now));
                let set = self.accounts.set_totp(user, totp.as_ref(), &codes, renewal, &actor).await;
                same(set, self.model.set_totp(user, totp, &codes, renewal, &by))
            }
            Step::UseCodeOfApp(n, is_stale, totp_step) => {
                let Some(user) = self.read(n, is_stale) else { return Ok(()) };
                let used = self.accounts.use_totp_step(&user, totp_step).await;
                same(used, Ok(self.model.use_totp_step(&user, totp_step)))
            }
            Step::UseCode(n, is_stale, c) => {
                let Some(user) = self.read(n, is_stale) else { return Ok(()) };
                let by = self.by(Author::Link);
                let used = self.accounts.use_recovery_code(&user, &code(c), &by.actor(now)).await;
                same(used, Ok(self.model.use_recovery_code(&user, code(c), &by)))
            }
            Step::Attempt(n, is_blocked) => {
                let (user, by) = (self.user(n), self.by(Author::Link));
                let recorded = self.accounts.record_attempt(user, is_blocked, &by.actor(now)).await;
                let action = if is_blocked { "user.attempts_blocked" } else { "user.attempt_failed" };
                same(recorded, self.model.record_attempt(user, action, &by))
            }
            Step::SignIn(n, is_stale, idle_seconds) => {
                let Some(user) = self.read(n, is_stale) else { return Ok(()) };
                let (by, digest) = (self.by(Author::Link), self.new_token());
                self.sessions.push(digest);
                let session = Session {
                    digest,
                    user: user.id,
                    created_at: now,
                    authenticated_at: now,
                    last_seen_at: now,
                    address: by.address,
                    user_agent: "Firefox 140".to_owned(),
                };
                let used_before = now - Duration::from_secs(idle_seconds);
                let begun = self.accounts.begin_session(&session, &user, used_before, &by.actor(now)).await;
                same(begun, Ok(self.model.begin_session(session, &user, used_before, &by)))
            }
            Step::Touch(n) => {
                let digest = self.session(n);
                self.model.touch_session(digest);
                same(self.accounts.touch_session(&digest, now).await, Ok(()))
            }
            Step::Renew(n) => {
                let renewal = Renewal { old: self.session(n), new: self.new_token() };
                self.sessions.push(renewal.new);
                same(self.accounts.renew_session(&renewal, now).await, self.model.renew_session(&renewal))
            }
            Step::EndSession(n, s, author) => {
                let (user, digest, by) = (self.user(n), self.session(s), self.by(author));
                let ended = self.accounts.end_session(user, &digest.id(), &by.actor(now)).await;
                let expected = self.model.end_sessions(user, |session| session.digest == digest, &by);
                same(ended, expected.map(|ended| ended > 0))
            }
            Step::EndSessions(n, keep, author) => {
                let (user, by) = (self.user(n), self.by(author));
                let keep = keep.map(|n| self.session(n));
                let ended = self.accounts.end_sessions(user, keep.as_ref(), &by.actor(now)).await;
                same(ended, self.model.end_sessions(user, |session| Some(session.digest) != keep, &by))
            }
        }
    }
}
