//! The operations, drawn so that they often meet: few objects, small amounts, and times around an expiry.

use std::net::IpAddr;

use enrich_lib::credit::Settlement;
use enrich_lib::model::Timestamp;
use enrich_store::users::{LinkPurpose, Role};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Actor, Authority, TokenDigest};
use proptest::collection::vec;
use proptest::prelude::*;

/// The first two exist. The name of the fourth is reserved, and the last one differs from the first in case.
pub(super) const WORKSPACES: [&str; 5] = ["shop", "other", "consoles", "console.user", "Shop"];

pub(super) const EMAILS: [&str; 4] =
    ["ada@example.com", "bob@example.com", "cleo@example.com", "dan@example.com"];

/// Who makes a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Author {
    Operator,
    /// A user without a session, such as the holder of a link.
    Link,
    /// The user of the `n`-th session, who must be an admin or not.
    Session(usize, bool),
}

/// The author of a change.
#[derive(Clone)]
pub(super) struct By {
    pub(super) name: String,
    pub(super) address: Option<IpAddr>,
    /// The session that the change requires, and whether its user must be an admin.
    pub(super) session: Option<(TokenDigest, bool)>,
}

impl By {
    pub(super) fn actor(&self, now: Timestamp) -> Actor<'_> {
        let authority = self.session.as_ref();
        let authority = authority.map(|(session, is_admin)| Authority { session, is_admin: *is_admin });
        Actor { name: &self.name, address: self.address, now, authority }
    }
}

/// One operation. Objects are numbered in the order of their creation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    CreateWorkspace(usize, u64),
    Change(usize, Vec<WorkspaceChange<'static>>, Author),
    Grant(usize, u64),
    Adjust(usize, i64, Author),
    Refund(usize, Author),
    /// With the seconds to its expiry and the number of its form.
    CreateKey(usize, Option<u64>, Option<u8>, Author),
    Revoke(usize, Author),
    Enable(usize, bool, Author),
    Rotate(usize, Option<u8>, u64, Author),
    /// Node, key, credits, seconds to the expiry and the number of the receipt.
    Hold(usize, usize, u64, u64, Option<u8>),
    Settle(usize, usize, Settlement),
    /// Holds and spends, by two nodes.
    Bill(usize, usize, u64, Option<u8>),
    /// As `Bill`, with a key, for a lookup that arrived this number of days ago, and whose workspace is deleted
    /// meanwhile or not. Then free lookups that are as old.
    BillLate(usize, u64, bool),
    Free(usize, usize),
    Wait(u64),
    /// A crash and, after these seconds, the removal of spends that are older than this number of days.
    Retain(u64, u32),
    Invite(usize, usize, LinkPurpose, Author),
    UseLink(usize),
    DeleteInvitation(usize, usize, Author),
    SetRole(usize, usize, Role, Author),
    Remove(usize, usize, Author),
    Password(usize, Author),
    Totp(usize, bool, usize, Author),
    UseCodeOfApp(usize, bool, u64),
    UseCode(usize, bool, usize),
    Attempt(usize, bool),
    SignIn(usize, bool, u64),
    Touch(usize),
    Renew(usize),
    EndSession(usize, usize, Author),
    EndSessions(usize, Option<usize>, Author),
}

/// Returns the steps before each random sequence. They create two workspaces, each with a key, and a spend with
/// a receipt. The first workspace has two admins, each with a session, and an invitation by one of them.
pub(super) fn prelude() -> Vec<Step> {
    let invite = |w, e, role| Step::Invite(w, e, LinkPurpose::Join(role), Author::Operator);
    vec![
        Step::CreateWorkspace(0, 20),
        Step::CreateWorkspace(1, 10),
        Step::CreateKey(0, None, None, Author::Operator),
        Step::CreateKey(1, Some(3_600), None, Author::Operator),
        invite(0, 0, Role::Admin),
        Step::UseLink(0),
        invite(0, 1, Role::Admin),
        Step::UseLink(1),
        Step::SignIn(0, false, 3_600),
        Step::SignIn(1, false, 3_600),
        Step::Invite(0, 2, LinkPurpose::Join(Role::Member), Author::Session(0, true)),
        Step::Bill(0, 0, 2, Some(0)),
    ]
}

/// Returns the steps after each random sequence: two removals with a spend of an earlier day between them, and
/// lookups in progress while their workspaces are deleted.
pub(super) fn finale() -> [Step; 6] {
    [
        Step::BillLate(1, 0, true),
        Step::Bill(0, 0, 1, None),
        Step::Retain(93_600, 0),
        Step::BillLate(0, 2, false),
        Step::Retain(40_000, 0),
        Step::BillLate(0, 0, true),
    ]
}

/// Generates sequences. Most have the steps of one kind only, so that more of these meet each other.
pub(super) fn steps() -> BoxedStrategy<Vec<Step>> {
    let w = || prop_oneof![12 => Just(0_usize), 6 => Just(1), 1 => 2..5_usize];
    let n = || 0..5_usize;
    let by = || {
        prop_oneof![
            2 => Just(Author::Operator),
            1 => Just(Author::Link),
            3 => (0..5_usize, any::<bool>()).prop_map(|(n, is_admin)| Author::Session(n, is_admin)),
        ]
    };
    let operator = || prop_oneof![Just(Author::Operator), Just(Author::Link)];
    let role = || prop_oneof![Just(Role::Admin), Just(Role::Member)];
    let seconds = || prop_oneof![Just(0_u64), Just(5), Just(20), Just(60), Just(3_600), Just(90_000)];
    let form = || prop_oneof![2 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let receipt = || prop_oneof![Just(None), (0..2_u8).prop_map(Some)];
    let settlement = prop_oneof![3 => (1..5_u64).prop_map(Settlement::Spend), 1 => Just(Settlement::Release)];
    let workspaces = prop_oneof![
        1 => (w(), 0..5_u64).prop_map(|(w, credits)| Step::CreateWorkspace(w, credits)),
        5 => (w(), vec(change(), 1..3), operator()).prop_map(|(w, changes, by)| Step::Change(w, changes, by)),
    ];
    let credits = prop_oneof![
        // The sum of two balances of 5 * 2^60 is too large.
        2 => (w(), prop_oneof![8 => 1..9_u64, 1 => Just(5 << 60), 1 => Just(i64::MAX as u64)])
            .prop_map(|(w, c)| Step::Grant(w, c)),
        3 => (w(), amount(), operator()).prop_map(|(w, credits, by)| Step::Adjust(w, credits, by)),
        3 => (0..4_usize, operator()).prop_map(|(n, by)| Step::Refund(n, by)),
    ];
    // No sum of waits is close to the lifetime of a receipt, because PostgreSQL's clock runs meanwhile.
    let retain = (prop_oneof![Just(40_000), Just(93_600)], 0..3_u32)
        .prop_map(|(seconds, days)| Step::Retain(seconds, days));
    let keys = prop_oneof![
        3 => (w(), prop_oneof![Just(None), seconds().prop_map(Some)], form(), by())
            .prop_map(|(w, seconds, form, by)| Step::CreateKey(w, seconds, form, by)),
        2 => (n(), by()).prop_map(|(n, by)| Step::Revoke(n, by)),
        3 => (n(), any::<bool>(), by()).prop_map(|(n, is_enabled, by)| Step::Enable(n, is_enabled, by)),
        3 => (n(), form(), seconds(), by()).prop_map(|(n, form, seconds, by)| Step::Rotate(n, form, seconds, by)),
    ];
    let lookups = prop_oneof![
        2 => (n(), n(), 1..5_u64, 1..30_u64, receipt())
            .prop_map(|(node, n, credits, ttl, receipt)| Step::Hold(node, n, credits, ttl, receipt)),
        2 => (n(), 0..6_usize, settlement).prop_map(|(node, n, settlement)| Step::Settle(node, n, settlement)),
        4 => (n(), n(), 1..4_u64, receipt())
            .prop_map(|(node, n, credits, receipt)| Step::Bill(node, n, credits, receipt)),
        1 => (n(), n()).prop_map(|(node, n)| Step::Free(node, n)),
    ];
    let purpose = prop_oneof![2 => role().prop_map(LinkPurpose::Join), 1 => Just(LinkPurpose::Reset)];
    let users = prop_oneof![
        4 => (w(), 0..4_usize, purpose, by()).prop_map(|(w, e, purpose, by)| Step::Invite(w, e, purpose, by)),
        4 => (0..8_usize).prop_map(Step::UseLink),
        1 => (w(), 0..8_usize, by()).prop_map(|(w, n, by)| Step::DeleteInvitation(w, n, by)),
        3 => (w(), n(), role(), by()).prop_map(|(w, n, role, by)| Step::SetRole(w, n, role, by)),
        1 => (w(), n(), by()).prop_map(|(w, n, by)| Step::Remove(w, n, by)),
        2 => (n(), by()).prop_map(|(n, by)| Step::Password(n, by)),
        3 => (n(), any::<bool>(), 0..3_usize, by())
            .prop_map(|(n, is_on, codes, by)| Step::Totp(n, is_on, codes, by)),
        2 => (n(), any::<bool>(), 2..7_u64).prop_map(|(n, is_stale, step)| Step::UseCodeOfApp(n, is_stale, step)),
        2 => (n(), any::<bool>(), 0..3_usize).prop_map(|(n, is_stale, code)| Step::UseCode(n, is_stale, code)),
        1 => (n(), any::<bool>()).prop_map(|(n, is_blocked)| Step::Attempt(n, is_blocked)),
    ];
    let sessions = prop_oneof![
        4 => (n(), prop::bool::weighted(0.3), seconds()).prop_map(|(n, stale, idle)| Step::SignIn(n, stale, idle)),
        2 => n().prop_map(Step::Touch),
        1 => n().prop_map(Step::Renew),
        1 => (n(), n(), by()).prop_map(|(n, s, by)| Step::EndSession(n, s, by)),
        1 => (n(), prop_oneof![Just(None), n().prop_map(Some)], by())
            .prop_map(|(n, keep, by)| Step::EndSessions(n, keep, by)),
    ];
    let wait = || prop_oneof![5 => seconds(), 1 => Just(29 * 86_400)].prop_map(Step::Wait);
    let of_credits =
        prop_oneof![4 => credits.clone(), 2 => wait(), 1 => retain.clone(), 8 => lookups.clone()];
    let of_keys = prop_oneof![1 => workspaces.clone(), 1 => wait(), 6 => keys.clone()];
    let of_users = prop_oneof![1 => wait(), 4 => users.clone(), 2 => sessions.clone()];
    let all = prop_oneof![
        8 => workspaces, 8 => credits, 4 => wait(), 1 => retain, 16 => keys, 16 => lookups, 20 => users, 12 => sessions
    ];
    prop_oneof![vec(all, 1..70), vec(of_credits, 1..70), vec(of_keys, 1..70), vec(of_users, 1..70)].boxed()
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![9 => -12..0_i64, 3 => 1..9_i64, 1 => Just(i64::MAX), 1 => Just(i64::MIN + 1)]
}

fn change() -> impl Strategy<Value = WorkspaceChange<'static>> {
    prop_oneof![
        6 => (prop_oneof![Just(None), Just(Some(0)), Just(Some(9)), Just(Some(500))],
              prop_oneof![Just(None), Just(Some(30)), Just(Some(86_401))])
            .prop_map(|(limit, window_seconds)| WorkspaceChange::Quota { limit, window_seconds }),
        4 => (0..25_u64).prop_map(WorkspaceChange::LowBalance),
        3 => prop_oneof![Just(None), Just(Some("The Shop"))].prop_map(WorkspaceChange::DisplayName),
        8 => any::<bool>().prop_map(WorkspaceChange::Suspended),
        1 => Just(WorkspaceChange::Deleted),
    ]
}
