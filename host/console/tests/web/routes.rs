//! Every route, with what it needs, and all that it changes.
//!
//! The rows state what is expected, independently of the guards of the router.

use std::collections::BTreeSet;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::world::{State, World};

/// A request by Ada, an admin of the workspace `shop`.
pub struct Row {
    pub route: &'static str,
    pub form: &'static str,
    /// The result when no state refuses the request, and then what the request needs: a `session`, a `recent`
    /// password, the right of an `admin` or of the author of a key, the `workspace` of the user, an `object` in
    /// it, a workspace that is `live`, and a `store` that can be written. An `attempt` and a `change` must be
    /// counted. The form of an account must be that of the `user`. `Gone=404` is the result in a state.
    ///
    /// A redirect leads to the sign-in page (`in`), to the page that asks for the password (`pw`) or for the
    /// code (`code`), to the list in which the object no longer is (`gone`), or on (`go`).
    needs: &'static str,
    /// The address of a redirect, and all that is changed when no state refuses the request, as
    /// [`Rows::since`](super::rows::Rows::since) shows it.
    pub changes: &'static str,
}

const fn row(route: &'static str, form: &'static str, needs: &'static str, changes: &'static str) -> Row {
    Row { route, form, needs, changes }
}

#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row("GET /", "", "go session", "/w/shop/keys: "),
    row("GET /sign-in", "", "in NoSession=200 Pending=200", ""),
    row("GET /w/{workspace}/sign-in", "", "200", ""),
    row("POST /w/{workspace}/sign-in", "email=ada@example.com&password=harbour+violet+spoon&next=//example.com", "go attempt store Pending=code Reset=401 NewFactor=code Removed=401",
        "/: +member_session(ada), -member_session(ada), ada user.signed_in ada, \
         ada user.sessions_ended ada (1)"),
    row("GET /w/{workspace}/sign-in/code", "", "200 Reset=in NewFactor=in Removed=in Foreign=in", ""),
    row("POST /w/{workspace}/sign-in/code", "code={code}", "go attempt store Reset=in NewFactor=in Removed=in Foreign=in",
        "/: +member_session(ada), member(ada).totp_last_step, ada user.signed_in ada"),
    row("POST /sign-out", "", "go session store",
        "/w/shop/sign-in?done=signed-out: -member_session(ada), ada user.sessions_ended ada (1)"),
    row("GET /confirm", "", "200 session", ""),
    row("POST /confirm", "password=harbour+violet+spoon&next=//example.com", "go session user attempt store",
        "/: member_session(ada).authenticated_at=now, member_session(ada).digest"),
    row("GET /join/{token}", "", "200 live Gone=404", ""),
    row("POST /join/{token}", NEW_PASSWORD, "go live store Gone=404 Uncounted=503",
        "/w/shop/sign-in?done=password-set: +member(new member), -member_link(operator new member), \
         new member.joined new (member)"),
    row("GET /reset/{token}", "", "200 live Gone=404", ""),
    row("POST /reset/{token}", NEW_PASSWORD, "go live store Gone=404 Uncounted=503",
        "/w/shop/sign-in?done=password-set: -member_link(operator bob), member(bob).password_hash, \
         bob user.password_changed bob"),
    row("GET /account", "", "200 session", ""),
    row("POST /account/password", "current=harbour+violet+spoon&password=lantern+cobalt+river&again=lantern+cobalt+river", "go session user attempt store",
        "/account?done=password-changed: -member_link(ada guest member), -member_session(ada), \
         member(ada).password_hash, member_session(ada).authenticated_at=now, \
         member_session(ada).digest, ada user.password_changed ada, ada member.invitation_revoked guest"),
    row("POST /account/sessions/end-others", "", "go session user store",
        "/account?done=sessions-ended: -member_session(ada), ada user.sessions_ended ada (1)"),
    row("POST /account/sessions/{session}/end", "", "go session user store Theirs=gone",
        "/account?done=session-ended: -member_session(ada), ada user.sessions_ended ada (1)"),
    row("GET /account/two-factor", "", "200 session recent", ""),
    row("POST /account/two-factor", NEW_APP, "200 session user recent attempt store",
        "10 +member_recovery_code(ada), -member_session(ada), member(ada).totp_last_step, \
         member(ada).totp_secret, member_session(ada).authenticated_at=now, member_session(ada).digest, \
         ada user.totp_enabled ada"),
    row("GET /account/two-factor/disable", "", "200 session recent", ""),
    row("POST /account/two-factor/disable", "", "go session user recent attempt store",
        "/account?done=totp-disabled: -member_session(ada), member_session(ada).authenticated_at=now, \
         member_session(ada).digest, ada user.totp_disabled ada"),
    row("GET /w/{workspace}", "", "go session workspace", "/w/shop/keys: "),
    row("GET /w/{workspace}/keys", "", "200 session workspace", ""),
    row("POST /w/{workspace}/keys", "form={form}&label=x", "200 session recent change workspace live store",
        "+api_key(ada x), ada key.created key (x)"),
    row("GET /w/{workspace}/keys/new", "", "200 session recent workspace live", ""),
    row("GET /w/{workspace}/keys/{key}/revoke", "", "200 session admin workspace object Gone=409 Deleted=409", ""),
    row("POST /w/{workspace}/keys/{key}/revoke", "", "go session admin workspace object live store",
        "/w/shop/keys?done=key-revoked: api_key(crm).revoked_at=now, ada key.revoked key (crm)"),
    row("GET /w/{workspace}/keys/{key}/rotate", "", "200 session recent admin workspace object live Gone=409", ""),
    row("POST /w/{workspace}/keys/{key}/rotate", "form={form}&grace=24", "200 session recent change admin workspace object live store Gone=409",
        "+api_key(operator crm), api_key(crm).expires_at=+86400s, ada key.rotated key (crm) to key"),
    row("POST /w/{workspace}/keys/{key}/disable", "", "go session admin workspace object live store Gone=409",
        "/w/shop/keys?done=key-disabled: api_key(crm).disabled_at=now, api_key(crm).disabled_by=ada, ada key.disabled key (crm)"),
    row("POST /w/{workspace}/keys/{key}/enable", "", "go session change admin workspace object live store Gone=409",
        "/w/shop/keys?done=key-enabled: "),
    row("GET /w/{workspace}/usage", "", "200 session workspace", ""),
    row("GET /w/{workspace}/usage.csv", "", "200 session workspace", ""),
    row("GET /w/{workspace}/ledger.csv", "", "200 session workspace", ""),
    row("GET /w/{workspace}/members", "", "200 session workspace", ""),
    row("POST /w/{workspace}/members", "form={form}&email=eve@example.com&role=member", "200 session recent change admin workspace live store",
        "+member_link(ada eve expires_at=+86400s member), ada member.invited eve (member)"),
    row("GET /w/{workspace}/members/invite", "", "200 session recent admin workspace live", ""),
    row("POST /w/{workspace}/members/invitations/{invitation}/delete", "", "go session change admin workspace live store Gone=gone Theirs=gone",
        "/w/shop/members?done=invitation-deleted: -member_link(ada guest member), \
         ada member.invitation_revoked guest"),
    row("GET /w/{workspace}/members/{user}/remove", "", "200 session recent admin workspace live Gone=gone Theirs=gone", ""),
    row("POST /w/{workspace}/members/{user}/remove", "", "go session recent change admin workspace live store Gone=gone Theirs=gone",
        "/w/shop/members?done=member-removed: -member(bob member), -member_link(operator bob), \
         ada member.removed bob"),
    row("GET /w/{workspace}/members/{user}/role", "", "200 session recent admin workspace live Gone=gone Theirs=gone", ""),
    row("POST /w/{workspace}/members/{user}/role", "role=admin", "go session recent change admin workspace live store Gone=gone Theirs=gone",
        "/w/shop/members?done=role-changed: member(bob).role=admin, ada member.role_changed bob (admin)"),
    row("GET /w/{workspace}/audit-log", "", "200 session workspace", ""),
    row("GET /w/{workspace}/quick-start", "", "200 session workspace", ""),
    row("POST /w/{workspace}/quick-start", "email=found@enrich.test", "200 session workspace live", ""),
    row("POST /w/{workspace}/keys", "form={form}&label=x&kind=test", "200 session recent change workspace live store",
        "+api_key(ada x), ada key.created key (x), a test key"),
    row("GET /reference", "", "go", "/reference/index.html: "),
    row("GET /reference/{*path}", "", "200", ""),
    row("GET /favicon.svg", "", "200", ""),
    row("POST /w/{workspace}/sign-in", "email=ada@example.com&password=wrong", "401 attempt",
        "not signed in user.attempt_failed ada"),
    row("POST /w/{workspace}/sign-in", "email=eve@example.com&password=wrong", "401 Uncounted=503", ""),
    row("POST /w/{workspace}/sign-in/code", "code=000000", "401 attempt store Reset=in NewFactor=in Removed=in Foreign=in",
        "not signed in user.attempt_failed ada"),
    row("POST /confirm", "password=wrong", "401 session user attempt store", "ada user.attempt_failed ada"),
    row("POST /join/{token}", "password=short&again=short", "422 live Gone=404 Uncounted=503", ""),
    row("POST /account/password", "current=wrong&password=lantern+cobalt+river&again=lantern+cobalt+river", "422 session user attempt store",
        "ada user.attempt_failed ada"),
    row("POST /account/two-factor", "secret=SGVsbG8h3q2-70hlbGxvId6tvu8&code=000000", "422 session user recent attempt",
        ""),
    row("POST /w/{workspace}/keys", "form={form}&label=x&lifetime=30", "200 session recent change workspace live store",
        "+api_key(ada expires_at=+2592000s initial_expires_at=+2592000s x), ada key.created key (x)"),
    row("POST /w/{workspace}/keys", "form={used}&label=x", "go session recent change workspace live store",
        "/w/shop/keys?done=key-exists: "),
    row("POST /w/{workspace}/keys", "form=0&label=x", "400 session recent change workspace live", ""),
    row("POST /w/{workspace}/keys", "form={form}&label=x&kind=live", "400 session recent change workspace live", ""),
    row("POST /w/{workspace}/keys", "form={form}&label=", "422 session recent change workspace live", ""),
    row("POST /w/{workspace}/keys/{own}/rotate", "form={form}&grace=0", "200 session recent change workspace object live store Gone=409",
        "+api_key(ada own), api_key(own).expires_at=now, ada key.rotated key (own) to key"),
    row("POST /w/{workspace}/keys/{key}/rotate", "form={form}&grace=5", "400 session recent change workspace live", ""),
    row("POST /w/{workspace}/keys/{off}/rotate", "form={form}&grace=24", "409 session recent change workspace object store",
        ""),
    row("POST /w/{workspace}/keys/{off}/enable", "", "go session change workspace object live store Gone=409",
        "/w/shop/keys?done=key-enabled: api_key(off).disabled_at=null, api_key(off).disabled_by=null, ada key.enabled key (off)"),
    row("POST /w/{workspace}/keys/{barred}/enable", "", "go session change admin workspace object live store Gone=409",
        "/w/shop/keys?done=key-enabled: api_key(barred).disabled_at=null, api_key(barred).disabled_by=null, \
         ada key.enabled key (barred)"),
    row("POST /w/{workspace}/members", "form={form}&email=bob@example.com&role=admin", "422 session recent change admin workspace live store Gone=200",
        ""),
    row("POST /w/{workspace}/members", "form={form}&email=guest@example.com&role=admin", "200 session recent change admin workspace live store",
        "+member_link(ada guest expires_at=+86400s admin), -member_link(ada guest member), \
         ada member.invited guest (admin)"),
    row("POST /w/{workspace}/members", "form={used}&email=guest@example.com&role=member", "200 session recent change admin workspace live",
        ""),
    row("POST /w/{workspace}/members", "form=0&email=eve@example.com&role=member", "400 session recent change admin workspace live", ""),
    row("POST /w/{workspace}/members", "email=x&role=member", "422 session recent change admin workspace live", ""),
    row("POST /w/{workspace}/members/{user}/role", "role=owner", "400 session recent change admin workspace live", ""),
];

/// Changes that depend on a state.
#[rustfmt::skip]
const OTHER_CHANGES: &[(&str, &[State], &str, &str)] = &[
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::NoSession], "go", "/: +member_session(ada), ada user.signed_in ada"),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Ended], "go", "/: +member_session(ada), ada user.signed_in ada"),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Reset],
        "401", "not signed in user.attempt_failed ada"),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Foreign],
        "go", "/: +other/member_session(ada), -member_session(ada), ada user.sessions_ended ada (1), \
         other/ada user.signed_in ada"),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::NoSession, State::Foreign], "go", SIGNED_IN_THERE),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Pending, State::Foreign], "go", SIGNED_IN_THERE),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Reset, State::Foreign], "go", SIGNED_IN_THERE),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Removed, State::Foreign], "go", SIGNED_IN_THERE),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Reset, State::Locked], "401", ""),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Reset, State::Removed], "401", ""),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=h", &[State::Pending, State::Removed], "401", ""),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=w", &[State::Removed], "401", ""),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=w", &[State::Foreign], "401", "other/not signed in user.attempt_failed ada"),
    ("POST /w/{workspace}/sign-in email=ada@example.com&password=w", &[State::Locked], "401", ""),
    ("POST /w/{workspace}/sign-in email=ada@example.com", &[State::Throttled, State::Foreign],
        "429", "other/not signed in user.attempts_blocked ada"),
    ("POST /account/password current=h", &[State::Demoted], "go", OWN_PASSWORD),
    ("POST /account/password current=h", &[State::Gone], "go", OWN_PASSWORD),
    ("POST /w/{workspace}/keys/{off}/rotate", &[State::Deleted, State::Locked], "409", ""),
    ("POST /w/{workspace}/keys/{off}/rotate", &[State::NotRecent, State::Deleted], "409", ""),
    ("POST /w/{workspace}/keys/{key}/revoke", &[State::Gone], "go", "/w/shop/keys?done=key-revoked: "),
    ("POST /w/{workspace}/members form={form}&email=bob", &[State::Gone],
        "200", "+member_link(ada bob expires_at=+86400s admin), ada member.invited bob (admin)"),
    ("POST /w/{workspace}/members form={used}", &[State::Gone],
        "200", "+member_link(ada guest expires_at=+86400s member), ada member.invited guest (member)"),
    ("POST /w/{workspace}/members form={used}", &[State::Gone, State::Locked], "503", ""),
    ("POST /w/{workspace}/members form={form}&email=guest", &[State::Gone],
        "200", "+member_link(ada guest expires_at=+86400s admin), ada member.invited guest (admin)"),
];

const SIGNED_IN_THERE: &str = "/: +other/member_session(ada), other/ada user.signed_in ada";

/// The changes of a password without invitations.
const OWN_PASSWORD: &str = "/account?done=password-changed: -member_session(ada), member(ada).password_hash, \
     member_session(ada).authenticated_at=now, member_session(ada).digest, ada user.password_changed ada";

const NEW_PASSWORD: &str = "password=lantern+cobalt+river&again=lantern+cobalt+river";

/// The form that turns on a second factor with the secret [`SECRET`](super::world::SECRET).
const NEW_APP: &str = "secret=SGVsbG8h3q2-70hlbGxvId6tvu8&code={code}";

impl Row {
    /// Returns the result in one state.
    pub fn result(&self, state: State) -> &'static str {
        if self.route.starts_with("POST") && state == State::OtherSite {
            return "403";
        }
        let name = format!("{state:?}");
        let (nominal, needs) = self.needs.split_once(' ').unwrap_or((self.needs, ""));
        let mut named = needs.split(' ').filter_map(|need| need.split_once('='));
        let named = named.find(|(of, _)| *of == name).map(|(_, result)| result);
        named.or_else(|| needs.split(' ').find_map(|need| without(need, state))).unwrap_or(nominal)
    }

    /// Returns the address of a request that is refused with the result `in` or `pw`. After the user has entered
    /// the password, it leads back to the page of the request, or to the page with the form that was sent and
    /// the notice that nothing was changed.
    pub fn detour(&self, world: &World, result: &str) -> String {
        let (method, path) = self.route.split_once(' ').unwrap();
        let page = match path {
            "/sign-in" => return "/w/shop/sign-in".to_owned(),
            path if path.ends_with("/code") => {
                return world.filled("/w/{workspace}/sign-in?done=password-first");
            }
            _ if result == "pw" => "/confirm",
            path if path.starts_with("/w/") => "/w/{workspace}/sign-in",
            _ => "/sign-in",
        };
        let form = match path {
            "/w/{workspace}/keys" => "/w/{workspace}/keys/new",
            "/w/{workspace}/members" => "/w/{workspace}/members/invite",
            path if path.ends_with("/remove") || path.ends_with("/role") => "/w/{workspace}/members",
            path => path,
        };
        let page = world.filled(page);
        let next = match (method, path) {
            ("POST", "/sign-out") => return format!("{page}?done=signed-out"),
            ("POST", _) if result == "in" => return format!("{page}?done=sign-in-again"),
            ("POST", "/account/two-factor") => format!("{path}?done=setup-expired"),
            ("POST", _) => format!("{form}?done=not-changed"),
            (_, "/") => return page,
            (_, path) if path.ends_with(".csv") => "/w/{workspace}/usage".to_owned(),
            _ => path.to_owned(),
        };
        format!("{page}?next={}", utf8_percent_encode(&world.filled(&next), NON_ALPHANUMERIC))
    }

    /// Returns the states of a request. The page for a code always has a pending sign-in.
    pub fn states(&self, states: &[State]) -> Vec<State> {
        let pending = self.route.ends_with("/sign-in/code").then_some(State::Pending);
        let states: BTreeSet<_> = pending.into_iter().chain(states.iter().copied()).collect();
        states.into_iter().collect()
    }

    /// Returns the result and the changes in some states: the first check that refuses the request decides.
    pub fn expected(&self, states: &[State]) -> (&'static str, &'static str) {
        let mut states = states.to_vec();
        states.sort_by_key(|state| self.check_of(*state));
        let nominal = self.result(State::Nominal);
        let refused = states.iter().map(|state| self.result(*state)).find(|result| *result != nominal);
        let result = refused.unwrap_or(nominal);
        let name = format!("{} {}", self.route, self.form);
        let other = OTHER_CHANGES.iter().filter(|(route, of, of_result, _)| {
            let is_same = of.len() > 1 || *of_result == result;
            name.starts_with(route) && of.iter().all(|state| states.contains(state)) && is_same
        });
        let other = other.max_by_key(|(_, of, ..)| of.len());
        match (refused, other) {
            (_, Some((.., result, changes))) => (result, changes),
            (None, None) => (result, self.changes),
            (Some("429"), None) if states.contains(&State::Throttled) => (result, self.blocked(&states)),
            (Some(_), None) => (result, ""),
        }
    }

    /// Returns the event of the first attempt that is refused. The password of a pending sign-in was an attempt,
    /// too.
    fn blocked(&self, states: &[State]) -> &'static str {
        match self.route.contains("/sign-in") {
            _ if states.contains(&State::Pending) || states.contains(&State::Locked) => "",
            true => "not signed in user.attempts_blocked ada",
            false => "ada user.attempts_blocked ada",
        }
    }

    /// Returns the number of the check that a state fails, in the order of the checks.
    fn check_of(&self, state: State) -> u8 {
        let is_sign_in = self.route.ends_with("/sign-in");
        let is_link = self.route.contains("{token}");
        let is_form = self.needs.contains("recent");
        match state {
            State::OtherSite => 0,
            State::Uncounted if is_sign_in => 1,
            State::Throttled if is_sign_in => 2,
            State::Gone | State::Deleted if is_link => 3,
            State::Foreign if self.route.ends_with("/code") => 3,
            State::NoSession | State::Stale | State::Pending | State::Ended => 3,
            State::Reset | State::NewFactor | State::Removed => 3,
            State::Uncounted if self.needs.contains("recent attempt") => 10,
            State::OtherUser | State::Uncounted => 4,
            State::Hurried => 5,
            State::Foreign => 6,
            // Guards know who manages members. Handlers know who may change a key.
            State::Demoted if self.route.contains("/members") => 7,
            State::Deleted if self.route.starts_with("POST") || is_form => 8,
            State::NotRecent => 9,
            State::Throttled => 11,
            State::Theirs if self.route.contains("/keys") => 11,
            State::Demoted => 12,
            State::Locked => 13,
            State::Deleted | State::Theirs | State::Gone | State::Capitals | State::Nominal => 14,
        }
    }
}

/// Returns the result of a request that lacks in this state what its route needs.
fn without(need: &str, state: State) -> Option<&'static str> {
    let is_signed_out = matches!(
        state,
        State::NoSession
            | State::Stale
            | State::Pending
            | State::Ended
            | State::Reset
            | State::NewFactor
            | State::Removed
    );
    Some(match (need, state) {
        ("session", _) if is_signed_out => "in",
        ("recent", State::NotRecent) => "pw",
        ("attempt", State::Throttled) | ("change", State::Hurried) => "429",
        ("attempt" | "change", State::Uncounted) | ("store", State::Locked) => "503",
        ("user", State::OtherUser) => "400",
        ("admin", State::Demoted) => "403",
        ("workspace", State::Foreign) | ("object", State::Theirs) => "404",
        ("live", State::Deleted) => "409",
        _ => return None,
    })
}
