//! Invariant 4.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_host::Limits;
use serde_json::{Value, json};

use super::ensure;
use crate::event::{Event, Reply, Sent, parse_lookup_id};
use crate::plan::Wish;
use crate::trace::Entry;

/// Checks that the specification allows every reply for its request: the status, and exactly the body and headers of that
/// status.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut requests = BTreeMap::new();
    let mut is_revoked = false;
    for entry in entries {
        match &entry.event {
            Event::Revoked => is_revoked = true,
            Event::Sent(sent) => drop(requests.insert(sent.number, (entry.at, sent))),
            Event::Received(number, reply) => {
                let is_specified = |&(at, sent): &(Duration, &Sent)| {
                    let is_slow = entry.at >= at + Limits::default().body.timeout;
                    let is_refused = is_revoked && sent.client.is_some() && reply.status == 401;
                    (is_possible(sent.wish, reply) || is_refused || is_slow && is_too_slow(sent.wish, reply))
                        && is_specified(sent, reply)
                };
                ensure(requests.get(number).is_some_and(is_specified), || entry.to_string())?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether this kind of request may receive this reply if its body arrives in time.
fn is_possible(wish: Wish, reply: &Reply) -> bool {
    match (wish, reply.status) {
        (Wish::NoKey, status) => status == 401,
        (Wish::StrangeKey, status) => [401, 500].contains(&status),
        (_, 429 | 500 | 503) => true,
        (Wish::Known, status) => [200, 402, 502].contains(&status),
        (Wish::Unknown, status) => [404, 402, 502].contains(&status),
        (Wish::OptedOut, status) => [404, 402].contains(&status),
        (Wish::NoEmail, 400) => reply.body.contains("invalid_email"),
        (Wish::Role, 400) => reply.body.contains("unsupported_email"),
        (Wish::ExtraField, 400) => reply.body.contains("invalid_request"),
        _ => false,
    }
}

/// Returns whether the reply reports that a request's body did not arrive in time, although its head did.
fn is_too_slow(wish: Wish, reply: &Reply) -> bool {
    wish != Wish::NoKey
        && wish != Wish::StrangeKey
        && reply.status == 400
        && reply.body.contains("invalid_request")
}

fn is_specified(sent: &Sent, reply: &Reply) -> bool {
    let Ok(body) = serde_json::from_str::<Value>(&reply.body) else { return false };
    let id = body["lookup_id"].as_str().filter(|id| parse_lookup_id(id).is_some());
    let errors: &[&str] = match reply.status {
        200 => {
            let profile = json!({ "linkedin_url": sent.profile });
            let expected = json!({ "lookup_id": id, "status": "found", "profile": profile });
            return id.is_some() && body == expected && has_headers(reply);
        }
        404 => {
            let expected = json!({ "lookup_id": id, "status": "not_found" });
            return id.is_some() && body == expected && has_headers(reply);
        }
        400 => &["invalid_request", "invalid_email", "unsupported_email"],
        401 => &["unauthorized"],
        402 => &["insufficient_credits"],
        429 => &["rate_limited"],
        500 => &["server_error"],
        502 => &["lookup_error"],
        503 => &["rate_limit_unavailable"],
        _ => &[],
    };
    errors.iter().any(|error| body == json!({ "error": error })) && has_headers(reply)
}

/// Returns whether the reply has exactly the headers of its status, including the three rate-limit headers if the request
/// was counted.
fn has_headers(reply: &Reply) -> bool {
    const STANDING: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let is_integer = |name: &str| header(reply, name).is_some_and(|value| value.parse::<u64>().is_ok());
    let has_standing = STANDING.iter().all(|name| is_integer(name));
    let has_none_of_it = STANDING.iter().all(|name| header(reply, name).is_none());
    let is_counted = match reply.status {
        401 | 503 => has_none_of_it,
        500 => has_standing || has_none_of_it, // fails before or after the count
        _ => has_standing,
    };
    let is_limited = is_integer("retry-after")
        && header(reply, "retry-after") == header(reply, "ratelimit-reset")
        && header(reply, "ratelimit-remaining") == Some("0");
    let is_known = |name: &str| {
        STANDING.contains(&name)
            || ["content-type", "content-length"].contains(&name)
            || (name == "retry-after" && reply.status == 429)
            || (name == "www-authenticate" && reply.status == 401)
            || (name == "connection" && reply.status == 401)
    };
    is_counted
        && (reply.status != 429 || is_limited)
        && (reply.status != 401 || header(reply, "www-authenticate") == Some("Bearer"))
        && header(reply, "content-type") == Some("application/json")
        && reply.headers.iter().all(|(name, _)| is_known(name))
}

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}
