//! Invariant 4.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_contract::reply;
use enrich_host::Limits;
use enrich_lib::wire::REQUEST_ID;
use http::Response;

use super::ensure::ensure;
use crate::event::{Event, LogLine, Reply, SentRequest, parse_lookup_id};
use crate::fault::FaultKind;
use crate::request::{HttpVersion, RequestKind};
use crate::trace::Entry;

/// Checks that the specification allows every reply for its request: the status, and exactly the body and
/// headers of that status. Its request id is that of exactly one log line with the same status. The program's
/// server announces the end of the connection in each reply while it stops; the connections of a gateway are
/// its own affair.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let (mut requests, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    let mut logged = BTreeSet::new();
    let (mut is_revoked, mut stopping) = (false, BTreeSet::new());
    let mut closing = BTreeSet::new();
    // The opt-outs are on a server, or on a disk that has failed.
    let mut can_be_unread = false;
    let mut is_program = true;
    for entry in entries {
        match &entry.event {
            Event::KeyRevoked => is_revoked = true,
            Event::RequestSent(sent) => drop(requests.insert(sent.number, (entry.at, sent))),
            Event::LookupStarted(node, lookup) => drop(nodes.insert(*lookup, *node)),
            Event::NodeStopping(node) => drop(stopping.insert(*node)),
            Event::FaultStarted(FaultKind::Disk(..)) => can_be_unread = true,
            Event::NodeStarted { node, is_program: is, is_alone } => {
                is_program = *is;
                can_be_unread |= !is_alone;
                stopping.remove(node);
            }
            Event::Logged(LogLine { lookup_end: Some(end), .. }) => {
                logged.insert(*end);
                if nodes.get(&end.0).is_some_and(|node| stopping.contains(node)) {
                    closing.insert(end.0);
                }
            }
            Event::ReplyReceived(number, reply) => {
                let request_id = header(reply, REQUEST_ID.as_str()).and_then(parse_lookup_id);
                let is_logged = request_id.is_some_and(|id| logged.remove(&(id, reply.status)));
                ensure(is_logged, || format!("not logged: {entry}"))?;
                let permitted =
                    reply::check(&response(reply)?).map_err(|error| format!("{error}: {entry}"))?;
                let is_permitted = |&(at, sent): &(Duration, &SentRequest)| {
                    let is_late = entry.at >= at + Limits::default().body.timeout;
                    let is_refused = is_revoked && sent.client.is_some() && reply.status == 401;
                    // A node that cannot read the opt-outs fails the lookup.
                    let is_opted_out = sent.kind == RequestKind::OptedOut;
                    let is_unread = can_be_unread && is_opted_out && reply.status == 502;
                    (is_possible(sent.kind, permitted.outcome())
                        || is_refused
                        || is_unread
                        || is_late && is_body_timeout(sent.kind, permitted.outcome()))
                        && permitted.profile.as_ref().is_none_or(|profile| *profile == sent.profile)
                };
                ensure(requests.get(number).is_some_and(is_permitted), || entry.to_string())?;
                if !is_program {
                    continue;
                }
                let adds_header =
                    ["date", "keep-alive", "server"].iter().any(|name| header(reply, name).is_some());
                ensure(!adds_header, || format!("has a header of a gateway: {entry}"))?;
                let is_http1 = requests.get(number).is_some_and(|(_, sent)| sent.http == HttpVersion::Http1);
                let must_close = is_http1 && request_id.is_some_and(|id| closing.contains(&id));
                let closes = header(reply, "connection") == Some("close");
                ensure(closes || !must_close, || format!("does not announce the close: {entry}"))?;
                let may_close = must_close || reply.status == 401;
                ensure(!closes || may_close, || format!("closes without a reason: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether this kind of request may receive this reply if its body arrives in time.
fn is_possible(kind: RequestKind, outcome: &str) -> bool {
    match (kind, outcome) {
        (RequestKind::NoKey, outcome) => outcome == "unauthorized",
        (RequestKind::UnknownKey, outcome) => ["unauthorized", "server_error"].contains(&outcome),
        (_, "rate_limited" | "server_error" | "rate_limit_unavailable") => true,
        (RequestKind::Known, outcome) => ["found", "insufficient_credits", "lookup_error"].contains(&outcome),
        (RequestKind::Unknown, outcome) => {
            ["not_found", "insufficient_credits", "lookup_error"].contains(&outcome)
        }
        (RequestKind::OptedOut, outcome) => ["not_found", "insufficient_credits"].contains(&outcome),
        (RequestKind::InvalidEmail, outcome) => outcome == "invalid_email",
        (RequestKind::RoleAccount, outcome) => outcome == "unsupported_email",
        (RequestKind::UnknownField, outcome) => outcome == "invalid_request",
    }
}

/// Returns whether the reply reports that a request's body did not arrive in time, although its head did.
fn is_body_timeout(kind: RequestKind, outcome: &str) -> bool {
    kind != RequestKind::NoKey && kind != RequestKind::UnknownKey && outcome == "invalid_request"
}

fn response(reply: &Reply) -> Result<Response<&str>, String> {
    let response = Response::builder().status(reply.status);
    let response =
        reply.headers.iter().fold(response, |response, (name, value)| response.header(name, value));
    response.body(reply.body.as_str()).map_err(|error| error.to_string())
}

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}
