//! The check that the model permits each result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::receipt::Receipt;
use enrich_lib::wire::ERROR_REASON;
use enrich_vendors::middleware::Deadline;

use super::causes::{Causes, Dependency, RECOVERY_TIME};
use super::state::{self, State};
use super::vendors::Vendors;
use super::{credits, readiness, windows};
use crate::event::{Event, PortCall, Reply, SentRequest};
use crate::lookup_history::{LookupHistory, lookup_histories};
use crate::request::{RequestKind, SLOW, SLOW_TIME, TEST_ADDRESSES};
use crate::trace::Entry;
use crate::vendor::{CONCURRENCY, QUEUE_MAX};

/// How long a spend takes at most without a fault: as long as two commits.
const SPEND_TIME: Duration = Duration::from_secs(1);

/// How long the vendors take at most, with any fault: their deadline, and the reading of people and opt-outs.
const RESOLVE_TIME: Duration = Deadline::BUDGET.saturating_add(Duration::from_millis(500));

/// How long any other call of a store takes at most without a fault.
const CALL_TIME: Duration = Duration::from_millis(400);

/// How many answers of vendors close the circuit breakers of a node at the latest.
const ANSWERS_MAX: usize = 6;

/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the model while it reads the trace of a run.
struct Model {
    causes: Causes,
    histories: BTreeMap<LookupId, LookupHistory>,
    /// The lookups that were refused although their workspace had credits or was below its limit.
    unjust: BTreeSet<LookupId>,
    vendors: Vendors,
    state: State,
    /// The receipts of lookups.
    receipts: BTreeMap<LookupId, (WorkspaceId, Receipt)>,
    /// When spends with a receipt were refunded.
    refunds: Vec<(Duration, (WorkspaceId, Receipt))>,
    /// Whether the nodes run the program and not a gateway with stores of its own.
    is_program: bool,
    /// Whether the node has no servers.
    is_alone: bool,
}

/// Checks that each reply is one that its request may receive, and that each lookup that failed or was
/// refused has a cause.
pub(crate) fn check(entries: &[Entry]) -> Result<(), String> {
    let (histories, causes) = (lookup_histories(entries), Causes::of(entries));
    let mut unjust = credits::unjust_refusals(entries, &histories, &causes);
    let is_gateway = |entry: &Entry| matches!(entry.event, Event::NodeStarted { is_program: false, .. });
    let is_program = !entries.iter().any(is_gateway);
    let is_alone = entries.iter().any(|it| matches!(it.event, Event::NodeStarted { is_alone: true, .. }));
    let vendors = Vendors::of(entries, &histories);
    unjust.append(&mut windows::unjust_refusals(entries)?);
    let receipts = entries.iter().filter_map(|entry| match &entry.event {
        Event::HoldRequested(lookup, workspace, _, Some(receipt)) => {
            Some((*lookup, (workspace.clone(), *receipt)))
        }
        _ => None,
    });
    let receipts: BTreeMap<_, _> = receipts.collect();
    let refunds = entries.iter().filter_map(|entry| match &entry.event {
        Event::SpendRefunded(lookup) => Some((entry.at, receipts.get(lookup)?.clone())),
        _ => None,
    });
    let (refunds, state) = (refunds.collect(), State::of(entries));
    let model = Model { causes, histories, unjust, vendors, state, receipts, refunds, is_program, is_alone };
    state::check(entries, &model.state)?;
    readiness::check(entries, &model.causes)?;
    if is_program {
        model.check_times(entries)?;
    }
    for (lookup, history) in &model.histories {
        // Its address determines the status of a test lookup: see `permits`.
        for status in history.logged_statuses.iter().filter(|_| !history.is_test) {
            if !model.is_caused(*status, *lookup, history) {
                return Err(format!("{lookup} ended with {status} without a cause: {history:?}"));
            }
        }
    }
    let mut requests = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::RequestSent(sent) => drop(requests.insert(sent.number, (entry.at, sent))),
            Event::ReplyReceived(number, reply) => {
                let request = requests.get(number);
                if !request.is_some_and(|(sent_at, sent)| model.permits(reply, sent, entry.at - *sent_at)) {
                    return Err(format!("not a reply to this request: {entry}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl Model {
    /// Returns whether a lookup may end with this status, whatever its request is.
    fn is_caused(&self, status: u16, lookup: LookupId, history: &LookupHistory) -> bool {
        let dependencies: &[_] = match status {
            402 | 429 => return !self.unjust.contains(&lookup),
            // Its stores may have limits and clocks of their own.
            500 if !self.is_program => return true,
            500 if self.may_have_lost_its_hold(history) => return true,
            // Its receipt ended after its hold took no credits.
            500 if self.has_lost_its_receipt(lookup, history) => return true,
            500 => &[Dependency::Accounts],
            502 if self.may_be_refused_by_vendors(lookup, history) => return true,
            502 => &[Dependency::Vendor, Dependency::Accounts],
            // The windows of a node without servers are in its memory.
            503 if self.is_alone => &[],
            503 => &[Dependency::Windows, Dependency::Clock],
            _ => return true,
        };
        dependencies.iter().any(|dependency| self.has_failed(*dependency, history))
    }

    /// Checks that each call of the program's stores ends in time, unless the store can have failed.
    fn check_times(&self, entries: &[Entry]) -> Result<(), String> {
        let mut called = BTreeMap::new();
        for Entry { at, event } in entries {
            match event {
                Event::PortCalled(lookup, call) => drop(called.insert(*lookup, (*at, *call))),
                Event::PortReturned(lookup, _) => {
                    let Some((from, call)) = called.remove(lookup) else { continue };
                    let of_windows = call == PortCall::CountRequest;
                    let dependency = if of_windows { Dependency::Windows } else { Dependency::Accounts };
                    let history = &self.histories[lookup];
                    let time_max = match call {
                        PortCall::Resolve => RESOLVE_TIME,
                        PortCall::Settle(Settlement::Spend(_)) => SPEND_TIME,
                        _ => CALL_TIME,
                    };
                    let is_late = *at - from > time_max;
                    if is_late && (call == PortCall::Resolve || !self.has_failed(dependency, history)) {
                        return Err(format!("{lookup}: {call:?} takes {:?} without a cause", *at - from));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether an operator can have withdrawn the credits that a lookup was to spend.
    fn may_have_lost_its_hold(&self, history: &LookupHistory) -> bool {
        let ended_at = history.ended_at.unwrap_or(Duration::MAX);
        history.is_of_clients()
            && history.has_requested_spend()
            && self.state.may_have_withdrawn(history.started_at, ended_at)
    }

    /// Returns whether the spend with the receipt of a lookup was refunded while it ran.
    fn has_lost_its_receipt(&self, lookup: LookupId, history: &LookupHistory) -> bool {
        let (receipt, until) = (self.receipts.get(&lookup), history.ended_at.unwrap_or(Duration::MAX));
        self.refunds.iter().any(|(at, of)| Some(of) == receipt && (history.started_at..=until).contains(at))
    }

    /// Returns whether a fault of `dependency` can have had an effect on a lookup.
    fn has_failed(&self, dependency: Dependency, history: &LookupHistory) -> bool {
        let until = history.ended_at.unwrap_or(Duration::MAX);
        let recovering = history.started_at.saturating_sub(RECOVERY_TIME);
        let from =
            dependency.call().map_or(recovering, |call| self.affected_since(call, history, recovering));
        self.causes.has(dependency, history.node, from, until)
            || dependency == Dependency::Accounts
                && history.is_of_clients()
                && self.has_failed(Dependency::Balance, history)
    }

    /// Returns whether the limits of a vendor can have refused a lookup, or its circuit breaker, which admits few
    /// lookups at once until some have succeeded after a fault, however late.
    fn may_be_refused_by_vendors(&self, lookup: LookupId, history: &LookupHistory) -> bool {
        let LookupHistory { node, started_at, .. } = *history;
        let concurrent = self.vendors.concurrent.get(&lookup).copied().unwrap_or_default();
        self.vendors.have_limits && concurrent > CONCURRENCY + QUEUE_MAX
            || concurrent > 1
                && self.causes.last_end(Dependency::Vendor, node, started_at).is_some_and(|ended_at| {
                    self.vendors.answers(node, ended_at + RECOVERY_TIME, started_at) < ANSWERS_MAX
                })
    }

    /// Returns since when a fault of what `call` uses can affect a lookup. The last lookup before on the node may
    /// have left a connection that was lost unnoticed, and those that ended while the node was `recovering` may
    /// have opened a circuit breaker, by requests that they sent during the fault, or use such a connection.
    fn affected_since(&self, call: PortCall, history: &LookupHistory, recovering: Duration) -> Duration {
        let before = || {
            let on_node = self.histories.values().filter(|other| other.node == history.node);
            on_node.filter(|other| other.started_at < history.started_at && other.has_called(call))
        };
        let is_recent = |other: &&LookupHistory| {
            !other.is_interrupted && other.ended_at.is_none_or(|ended_at| ended_at >= recovering)
        };
        let first = before().filter(is_recent).map(|other| other.started_at).min();
        let first = first.unwrap_or(history.started_at);
        // Only requests to a vendor share a connection, over HTTP/2.
        let shared = if call == PortCall::Resolve { first } else { history.started_at };
        let last = before().map(|other| other.started_at).filter(|at| *at < shared).max();
        last.unwrap_or(recovering).min(first).min(recovering)
    }

    /// Returns whether a request may receive this reply after `time`, if its lookup has a cause for it.
    fn permits(&self, reply: &Reply, sent: &SentRequest, time: Duration) -> bool {
        let is_test = sent.is_test;
        let (nominal, reason, is_looked_up) = match sent.kind {
            RequestKind::TestAddress(_) if !is_test => {
                ("unsupported_email", Some("domain-not-public"), false)
            }
            RequestKind::TestAddress(index) => (TEST_ADDRESSES[index].1, None, false),
            RequestKind::Known | RequestKind::Unknown | RequestKind::OptedOut | RequestKind::RoleAccount
                if is_test =>
            {
                ("not_found", None, false)
            }
            RequestKind::Known => ("found", None, true),
            RequestKind::Unknown | RequestKind::OptedOut => ("not_found", None, true),
            RequestKind::InvalidEmail => ("invalid_email", Some("email-syntax"), false),
            RequestKind::RoleAccount => ("unsupported_email", Some("role-account"), false),
            RequestKind::UnknownField => ("invalid_request", Some("unknown-field"), false),
            RequestKind::NoKey | RequestKind::UnknownKey => ("unauthorized", None, false),
        };
        let has_key = nominal != "unauthorized";
        let outcome = outcome(reply).unwrap_or_default();
        if is_test && outcome == nominal {
            let is_slow = sent.email.starts_with(SLOW);
            return !is_slow || outcome != "found" || time >= SLOW_TIME;
        }
        if let Some(id) = reply.lookup_id().filter(|_| is_test)
            && !self.histories.get(&id).is_some_and(|history| self.is_caused(reply.status, id, history))
        {
            return false;
        }
        match outcome.as_str() {
            "found" | "not_found" if is_looked_up && sent.kind != RequestKind::OptedOut => {
                self.permits_profile(reply, sent)
            }
            outcome if outcome == nominal && reply.header(ERROR_REASON.as_str()) == reason => true,
            "unauthorized" => self.lookup(reply).is_some_and(|history| !history.has_key),
            "server_error" => sent.kind != RequestKind::NoKey,
            "rate_limited" | "rate_limit_unavailable" => has_key,
            "invalid_request" => {
                let is_slow = reply.header(ERROR_REASON.as_str()) == Some("body-too-slow");
                has_key && is_slow && time >= BODY_TIMEOUT
            }
            "insufficient_credits" => is_looked_up,
            "lookup_error" => is_looked_up,
            _ => false,
        }
    }

    /// Returns whether the person can have had this profile, or none, in the sources of the node during the lookup.
    fn permits_profile(&self, reply: &Reply, sent: &SentRequest) -> bool {
        let found = profile(reply);
        let Some(history) = self.lookup(reply) else { return false };
        let (from, until) = (history.started_at, history.ended_at.unwrap_or(Duration::MAX));
        let has_opted_out = |is: bool| {
            self.state.opted_out.get(&sent.email).map_or(!is, |timeline| timeline.allows(&is, from, until))
        };
        let has_other = |is: bool| {
            let timeline = self.state.has_other_sources.get(&history.node);
            timeline.map_or(!is, |timeline| timeline.allows(&is, from, until))
        };
        let imported = self.state.imported.get(&sent.email);
        let is_imported = |name: Option<String>| {
            imported.map_or(name.is_none(), |timeline| timeline.allows(&name, from, until))
        };
        // The vendor does not know the people who were imported before the start.
        let is_of_vendor = imported.is_none_or(|timeline| timeline.first().is_none());
        let of_vendor = (is_of_vendor && sent.kind == RequestKind::Known).then(|| sent.profile.clone());
        let name = found.as_deref().and_then(|url| url.rsplit('/').next()).map(str::to_owned);
        // The vendor's match is used if the people could not be read.
        let has_no_record =
            is_imported(None) || of_vendor.is_some() && self.has_failed(Dependency::Accounts, history);
        let in_first = name.is_some() && is_imported(name) || found == of_vendor && has_no_record;
        let in_other = found == Some(format!("{}-other", sent.profile));
        found.is_none() && has_opted_out(true)
            || has_opted_out(false) && (has_other(false) && in_first || has_other(true) && in_other)
    }

    fn lookup(&self, reply: &Reply) -> Option<&LookupHistory> {
        self.histories.get(&reply.lookup_id()?)
    }
}

fn body(reply: &Reply) -> Option<serde_json::Value> {
    serde_json::from_str(&reply.body).ok()
}

/// Returns the URL of the profile in a body.
fn profile(reply: &Reply) -> Option<String> {
    Some(body(reply)?.get("profile")?.get("linkedin_url")?.as_str()?.to_owned())
}

/// Returns the status of a lookup or the code of an error in a body.
fn outcome(reply: &Reply) -> Option<String> {
    let body = body(reply)?;
    Some(body.get("status").or(body.get("error"))?.as_str()?.to_owned())
}
