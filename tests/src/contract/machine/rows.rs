//! All rows that an operator and the web application can read, as lines of text.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::records::{KeyRow, WorkspaceRow};
use enrich_store::usage::Day;
use enrich_store::users::{AuditEvent, Link, LinkPurpose, Session, User};
use enrich_store::{Accounts, StoreError, TokenDigest};
use proptest::prelude::*;

use super::lookups::without_holds;
use super::model::Model;

/// The numbers of rows of the pages that are read.
const PAGES: [u32; 3] = [2, 3, 1_000];

const FOREVER: Day = Day::from_number(u32::MAX);

/// A row with what its `Debug` omits.
struct Shown<'a, T>(&'a T);

impl Debug for Shown<'_, User> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let User { id, workspace: _, email, role, password_hash, totp, .. } = self.0;
        let totp = totp.as_ref().map(|totp| (&totp.secret, totp.last_step));
        let User { recovery_codes, created_at, last_seen_at, .. } = self.0;
        let times = (created_at, last_seen_at);
        write!(f, "{} {id:?} {role:?} {password_hash} {totp:?} {recovery_codes} {times:?}", email.as_str())
    }
}

impl Debug for Shown<'_, Session> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.0.digest.id(), self.0)
    }
}

impl Debug for Shown<'_, Link> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.0.digest.id(), self.0.email.as_str(), self.0)
    }
}

impl Debug for Shown<'_, AuditEvent> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AuditEvent { number: _, at, actor, action, subject, address } = self.0;
        write!(f, "{action} {subject} by {actor} from {address:?} at {at:?}")
    }
}

#[derive(Default, PartialEq)]
pub(super) struct Lines(Vec<String>);

impl Lines {
    /// Compares the rows of a store with those of the model.
    pub(super) fn compare(&self, found: &Self) -> Result<(), TestCaseError> {
        let only = |these: &Self, those: &Self| {
            these.0.iter().filter(|line| !those.0.contains(line)).cloned().collect::<Vec<_>>()
        };
        let (missing, wrong) = (only(self, found), only(found, self));
        prop_assert!(missing.is_empty() && wrong.is_empty(), "{wrong:#?} instead of {missing:#?}");
        prop_assert!(self == found, "{:#?} is in another order or number", found.0);
        Ok(())
    }

    fn add<T: Debug>(&mut self, id: &WorkspaceId, what: &str, rows: impl IntoIterator<Item = T>) {
        self.0.extend(rows.into_iter().map(|row| format!("{id}: {what} {row:?}")));
    }

    /// Adds events, newest first. The invitations that a change ends have their events in any order.
    fn add_log(&mut self, id: &WorkspaceId, log: &[AuditEvent]) {
        let ended = |event: &AuditEvent| (event.action == "member.invitation_revoked").then_some(event.at);
        for events in log.chunk_by(|a, b| ended(a).is_some() && ended(a) == ended(b)) {
            let from = self.0.len();
            self.add(id, "event", events.iter().map(Shown));
            self.0[from..].sort();
        }
    }

    /// Returns the rows of a workspace that the model expects.
    pub(super) fn expected(model: &Model, id: &WorkspaceId) -> Self {
        let mut lines = Self::default();
        let today = Day::from_timestamp(model.now);
        let Some(workspace) = model.workspace(id) else { return lines };
        lines.add(id, "row", model.row(id).map(shown));
        let keys = model.key_rows(id);
        lines.add(id, "key", keys.iter().map(without_use));
        lines.add(id, "last key", keys.last().map(without_use));
        lines.add(id, "pages of keys", pages(&model.key_order(id)));
        lines.add(id, "grant", &workspace.grants);
        let (spends, usage) = (model.spends(id), model.usage(id));
        lines.add(id, "spend", &spends);
        lines.add(id, "spend of today", spends.iter().filter(|row| Day::from_timestamp(row.at) == today));
        lines.add(id, "spend from the second on", spends.iter().skip(1));
        lines.add(id, "usage", &usage);
        lines.add(id, "usage of today", usage.iter().filter(|row| row.day == today));
        let mut spent = BTreeMap::new();
        usage.iter().filter(|row| row.credits > 0).for_each(|row| {
            *spent.entry(row.day).or_insert(0) += row.credits;
        });
        lines.add(id, "spent", spent);
        let log: Vec<_> = workspace.events.iter().rev().cloned().collect();
        lines.add(id, "pages of events", pages(&log).map(|page| page.len()));
        lines.add_log(id, &log);
        let mut users: Vec<_> = model.users.iter().filter(|user| user.workspace == *id).collect();
        users.sort_by_key(|user| &user.email);
        for user in users {
            lines.add(id, "user", [Shown(user)]);
            let mut of_user: Vec<_> = model.sessions.iter().filter(|s| s.user == user.id).collect();
            of_user.sort_by_key(|session| (Reverse(session.last_seen_at), session.digest));
            lines.add(id, "session", of_user.into_iter().map(Shown));
        }
        let is_listed = |link: &&Link| {
            link.workspace == *id && link.purpose != LinkPurpose::Reset && link.expires_at > model.now
        };
        let mut links: Vec<_> = model.links.iter().filter(is_listed).collect();
        links.sort_by_key(|link| (Reverse(link.created_at), link.digest));
        lines.add(id, "invitation", links.into_iter().map(Shown));
        lines
    }

    /// Reads the rows of a workspace.
    pub(super) async fn read(
        accounts: &mut Accounts,
        id: &WorkspaceId,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let (mut lines, today) = (Self::default(), Day::from_timestamp(now));
        let row = match accounts.workspace(id).await {
            Err(StoreError::UnknownWorkspace(_)) => {
                is_unknown(accounts, id, today).await;
                return Ok(lines);
            }
            row => row?,
        };
        lines.add(id, "row", [shown(row)]);
        let keys = accounts.keys(id, today).await?;
        lines.add(id, "key", keys.iter().map(without_use));
        if let Some(key) = keys.last() {
            lines.add(id, "last key", [without_use(&accounts.key(id, key.id, today).await?)]);
        }
        let (mut log, mut log_pages, mut key_pages, mut offset) =
            (Vec::<AuditEvent>::new(), vec![], vec![], 0);
        for limit in PAGES {
            let page = accounts.key_page(id, now, offset, limit).await?;
            key_pages.push(page.iter().map(|key| key.id).collect::<Vec<_>>());
            offset += limit;
            let page = accounts.audit_log(id, log.last().map(|event| event.number), limit).await?;
            log_pages.push(page.len());
            log.extend(page);
        }
        assert!(log.is_sorted_by(|a, b| a.number > b.number), "the numbers of {id} do not decrease");
        lines.add(id, "pages of keys", key_pages);
        lines.add(id, "grant", accounts.grants(id).await?);
        let end = FOREVER.first_lookup();
        let spends = accounts.spends(id, Day::default().first_lookup(), end).await?.rows;
        let of_today = accounts.spends(id, today.first_lookup(), today.next().first_lookup()).await?.rows;
        lines.add(id, "spend", &spends);
        lines.add(id, "spend of today", of_today);
        if let Some(second) = spends.get(1) {
            let page = accounts.spends(id, second.lookup_id, end).await?;
            lines.add(id, "spend from the second on", page.rows);
        }
        lines.add(id, "usage", accounts.usage(id, Day::default(), FOREVER).await?);
        lines.add(id, "usage of today", accounts.usage(id, today, today).await?);
        lines.add(id, "spent", accounts.spent_by_day(id, FOREVER).await?);
        lines.add(id, "pages of events", log_pages);
        lines.add_log(id, &log);
        for user in accounts.users(Some(id)).await? {
            let same = [accounts.user(user.id).await?, accounts.user_by_email(id, &user.email).await?];
            assert!(same.iter().all(|same| same.as_ref() == Some(&user)), "{user:?} is {same:?}");
            lines.add(id, "user", [Shown(&user)]);
            lines.add(id, "session", accounts.sessions(user.id).await?.iter().map(Shown));
        }
        lines.add(id, "invitation", accounts.invitations(Some(id), now).await?.iter().map(Shown));
        Ok(lines)
    }

    /// Returns the rows of all workspaces, and those that these tokens find, that the model expects.
    pub(super) fn expected_of_all(model: &Model, links: &[TokenDigest], sessions: &[TokenDigest]) -> Self {
        let mut lines = Self::default();
        let all = &all();
        let mut rows: Vec<_> = model.workspaces.iter().filter_map(|row| model.row(&row.id)).collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        lines.add(all, "low", rows.iter().filter(|row| is_surely_low(model, &row.id)).map(|row| &row.id));
        lines.add(all, "row", rows.into_iter().map(shown));
        let mut users: Vec<_> = model.users.iter().collect();
        users.sort_by_key(|user| (&user.workspace, &user.email));
        lines.add(all, "user", users.iter().map(|user| user.id));
        for digest in links {
            let is_it = |link: &&Link| link.digest == *digest && link.expires_at > model.now;
            lines.add(all, "link", [model.links.iter().find(is_it).map(Shown)]);
        }
        for digest in sessions {
            let session = model.sessions.iter().find(|session| session.digest == *digest);
            lines.add(all, "session", [session.map(Shown)]);
        }
        lines
    }

    /// Reads the rows of all workspaces, and those that these tokens find.
    pub(super) async fn read_of_all(
        accounts: &mut Accounts,
        model: &Model,
        links: &[TokenDigest],
        sessions: &[TokenDigest],
    ) -> Result<Self, StoreError> {
        let (mut lines, all, now) = (Self::default(), &all(), model.now);
        let low = accounts.low_balances().await?;
        let low = low.iter().filter(|row| !is_low(model, &row.id) || is_surely_low(model, &row.id));
        lines.add(all, "low", low.map(|row| &row.id));
        lines.add(all, "row", accounts.workspaces().await?.into_iter().map(shown));
        lines.add(all, "user", accounts.users(None).await?.iter().map(|user| user.id));
        for digest in links {
            lines.add(all, "link", [accounts.link(digest, now).await?.as_ref().map(Shown)]);
        }
        for digest in sessions {
            lines.add(all, "session", [accounts.session(digest).await?.as_ref().map(Shown)]);
        }
        Ok(lines)
    }
}

fn all() -> WorkspaceId {
    "all".parse().unwrap()
}

/// Checks that nothing can be read of a workspace that does not exist.
async fn is_unknown(accounts: &mut Accounts, id: &WorkspaceId, today: Day) {
    let results = [
        accounts.grants(id).await.map(drop),
        accounts.keys(id, today).await.map(drop),
        accounts.usage(id, today, today).await.map(drop),
        accounts.spent_by_day(id, today).await.map(drop),
        accounts.spends(id, today.first_lookup(), today.first_lookup()).await.map(drop),
        accounts.audit_log(id, None, 1).await.map(drop),
        accounts.users(Some(id)).await.map(drop),
        accounts.invitations(Some(id), today.starts_at()).await.map(drop),
    ];
    for result in results {
        assert!(matches!(&result, Err(StoreError::UnknownWorkspace(unknown)) if unknown == id), "{result:?}");
    }
}

fn shown(row: WorkspaceRow) -> WorkspaceRow {
    WorkspaceRow { balance: without_holds(row.balance), ..row }
}

fn without_use(key: &KeyRow) -> KeyRow {
    KeyRow { last_used_at: None, ..key.clone() }
}

/// Splits rows into [`PAGES`].
fn pages<T: Clone>(mut rows: &[T]) -> [Vec<T>; 3] {
    PAGES.map(|limit| {
        let (page, rest) = rows.split_at(rows.len().min(limit as usize));
        rows = rest;
        page.to_vec()
    })
}

/// Returns whether a workspace has fewer credits than its threshold. Some stores do not count those that are
/// held.
fn is_low(model: &Model, id: &WorkspaceId) -> bool {
    model.row(id).is_some_and(|row| {
        let is_active = row.properties.suspended_at.is_none() && row.properties.deleted_at.is_none();
        row.balance.available < row.properties.low_balance && is_active
    })
}

fn is_surely_low(model: &Model, id: &WorkspaceId) -> bool {
    is_low(model, id)
        && model.row(id).is_some_and(|row| without_holds(row.balance).available < row.properties.low_balance)
}
