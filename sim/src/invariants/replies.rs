//! Invariant 4.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_host::Limits;
use enrich_lib::refusal::Refusal;
use enrich_lib::wire::REQUEST_ID;
use serde_json::{Value, json};

use super::ensure::ensure;
use crate::event::{Event, LogLine, Reply, SentRequest, parse_lookup_id};
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
    let (mut is_program, mut is_alone) = (true, false);
    for entry in entries {
        match &entry.event {
            Event::KeyRevoked => is_revoked = true,
            Event::RequestSent(sent) => drop(requests.insert(sent.number, (entry.at, sent))),
            Event::LookupStarted(node, lookup) => drop(nodes.insert(*lookup, *node)),
            Event::NodeStopping(node) => drop(stopping.insert(*node)),
            Event::NodeStarted { node, is_program: is, is_alone: alone } => {
                (is_program, is_alone) = (*is, *alone);
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
                let is_specified = |&(at, sent): &(Duration, &SentRequest)| {
                    let is_late = entry.at >= at + Limits::default().body.timeout;
                    let is_refused = is_revoked && sent.client.is_some() && reply.status == 401;
                    // A node that cannot read the opt-outs in PostgreSQL fails the lookup.
                    let is_unread = !is_alone && sent.kind == RequestKind::OptedOut && reply.status == 502;
                    (is_possible(sent.kind, reply)
                        || is_refused
                        || is_unread
                        || is_late && is_body_timeout(sent.kind, reply))
                        && is_specified(sent, reply, is_program)
                };
                ensure(requests.get(number).is_some_and(is_specified), || entry.to_string())?;
                if !is_program {
                    continue;
                }
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
fn is_possible(kind: RequestKind, reply: &Reply) -> bool {
    match (kind, reply.status) {
        (RequestKind::NoKey, status) => status == 401,
        (RequestKind::UnknownKey, status) => [401, 500].contains(&status),
        (_, 429 | 500 | 503) => true,
        (RequestKind::Known, status) => [200, 402, 502].contains(&status),
        (RequestKind::Unknown, status) => [404, 402, 502].contains(&status),
        (RequestKind::OptedOut, status) => [404, 402].contains(&status),
        (RequestKind::InvalidEmail, 400) => reply.body.contains("invalid_email"),
        (RequestKind::RoleAccount, 400) => reply.body.contains("unsupported_email"),
        (RequestKind::UnknownField, 400) => reply.body.contains("invalid_request"),
        _ => false,
    }
}

/// Returns whether the reply reports that a request's body did not arrive in time, although its head did.
fn is_body_timeout(kind: RequestKind, reply: &Reply) -> bool {
    kind != RequestKind::NoKey
        && kind != RequestKind::UnknownKey
        && reply.status == 400
        && reply.body.contains("invalid_request")
}

fn is_specified(sent: &SentRequest, reply: &Reply, is_program: bool) -> bool {
    let Ok(body) = serde_json::from_str::<Value>(&reply.body) else { return false };
    let id = body["lookup_id"].as_str().filter(|id| header(reply, REQUEST_ID.as_str()) == Some(id));
    let is_body = match reply.status {
        200 => {
            let profile = json!({ "linkedin_url": sent.profile });
            id.is_some() && body == json!({ "lookup_id": id, "status": "found", "profile": profile })
        }
        404 => id.is_some() && body == json!({ "lookup_id": id, "status": "not_found" }),
        status => {
            let is =
                |refusal: &Refusal| refusal.status() == status && body == json!({ "error": refusal.code() });
            Refusal::ALL.iter().any(is)
        }
    };
    is_body && has_headers(reply, is_program)
}

/// Returns whether the reply has exactly the headers of its status, including the three rate-limit headers if
/// the request was counted. The server of a gateway may add headers of its own.
fn has_headers(reply: &Reply, is_program: bool) -> bool {
    const RATE_LIMIT: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let is_integer = |name: &str| header(reply, name).is_some_and(|value| value.parse::<u64>().is_ok());
    let has_rate_limit = RATE_LIMIT.iter().all(|name| is_integer(name));
    let has_no_rate_limit = RATE_LIMIT.iter().all(|name| header(reply, name).is_none());
    let is_consistent = match reply.status {
        401 | 503 => has_no_rate_limit,
        500 => has_rate_limit || has_no_rate_limit, // fails before or after the count
        _ => has_rate_limit,
    };
    let is_limited = is_integer("retry-after")
        && header(reply, "retry-after") == header(reply, "ratelimit-reset")
        && header(reply, "ratelimit-remaining") == Some("0");
    let is_allowed = |name: &str| {
        RATE_LIMIT.contains(&name)
            || ["content-type", "content-length", REQUEST_ID.as_str()].contains(&name)
            || (name == "retry-after" && [429, 503].contains(&reply.status))
            || (name == "www-authenticate" && reply.status == 401)
            || name == "connection"
            || (!is_program && ["date", "keep-alive", "server"].contains(&name))
    };
    is_consistent
        && (reply.status != 429 || is_limited)
        && (reply.status != 503 || header(reply, "retry-after") == Some("1"))
        && (reply.status != 401 || header(reply, "www-authenticate") == Some("Bearer"))
        && header(reply, "content-type") == Some("application/json")
        && reply.headers.iter().all(|(name, _)| is_allowed(name))
}

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}
