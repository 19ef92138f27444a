//! Invariant 4.

use std::collections::{BTreeMap, BTreeSet};

use enrich_contract::reply::{self, RateLimit};
use http::Response;

use super::ensure::ensure;
use crate::event::{Event, LogLine, PortResult, Reply, SentRequest};
use crate::request::{HttpVersion, SLOW};
use crate::trace::Entry;

/// Checks that every reply has exactly the body and headers that the specification fixes for its status. Those of
/// the rate limit state the count of its lookup. Its request id is that of exactly one log line with the same status. The program's
/// server announces the end of the connection in each reply while it stops; the connections of a gateway are
/// its own affair.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let (mut requests, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    let (mut logged, mut counts, mut has_wrong_clock) = (BTreeSet::new(), BTreeMap::new(), false);
    let (mut stopping, mut closing) = (BTreeSet::new(), BTreeSet::new());
    let (mut is_program, mut has_stopping) = (true, false);
    for entry in entries {
        match &entry.event {
            Event::RequestSent(sent) => drop(requests.insert(sent.number, sent)),
            Event::LookupStarted(node, lookup) => drop(nodes.insert(*lookup, *node)),
            Event::NodeStopping(node) => {
                has_stopping = true;
                stopping.insert(*node);
            }
            Event::NodeStarted { node, is_program: is, .. } => {
                is_program = *is;
                stopping.remove(node);
            }
            Event::Logged(LogLine { lookup_end: Some(end), .. }) => {
                logged.insert(*end);
                if nodes.get(&end.0).is_some_and(|node| stopping.contains(node)) {
                    closing.insert(end.0);
                }
            }
            Event::ClockSet(_) => has_wrong_clock = true,
            Event::PortReturned(lookup, counted @ PortResult::Counted { .. }) => {
                counts.insert(*lookup, *counted);
            }
            Event::ReplyReceived(number, reply) => {
                let request_id = reply.lookup_id();
                let is_logged = request_id.is_some_and(|id| logged.remove(&(id, reply.status)));
                ensure(is_logged, || format!("not logged: {entry}"))?;
                let permitted =
                    reply::check(&response(reply)?).map_err(|error| format!("{error}: {entry}"))?;
                let counted = request_id.and_then(|id| counts.get(&id));
                ensure(states_count(permitted.rate_limit, counted, has_wrong_clock), || {
                    format!("not the state after {counted:?}: {entry}")
                })?;
                let has_key =
                    requests.get(number).is_some_and(|sent: &&SentRequest| sent.idempotency_key.is_some());
                ensure(has_key || permitted.paid_by.is_none(), || format!("another lookup's id: {entry}"))?;
                if !is_program {
                    continue;
                }
                let adds_header =
                    ["date", "keep-alive", "server"].iter().any(|name| reply.header(name).is_some());
                ensure(!adds_header, || format!("has a header of a gateway: {entry}"))?;
                let is_http1 = requests.get(number).is_some_and(|sent| sent.http == HttpVersion::Http1);
                let must_close = is_http1 && request_id.is_some_and(|id| closing.contains(&id));
                let closes = reply.header("connection") == Some("close");
                ensure(closes || !must_close, || format!("does not announce the close: {entry}"))?;
                // The node may have begun to stop after the lookup has ended, and before the reply was sent.
                let is_slow = requests.get(number).is_some_and(|sent| sent.email.starts_with(SLOW));
                let may_close = must_close || reply.status == 401 || is_http1 && is_slow && has_stopping;
                ensure(!closes || may_close, || format!("closes without a reason: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether the headers of the rate limit are those of a counted request, and missing if it is not counted. The
/// time is that of the arrival, at most 2 s before the call.
fn states_count(sent: Option<RateLimit>, counted: Option<&PortResult>, has_wrong_clock: bool) -> bool {
    match (sent, counted) {
        (Some(sent), Some(&PortResult::Counted { count, limit, reset_seconds, is_test, .. })) => {
            let is_reset = (reset_seconds..=reset_seconds + 2).contains(&sent.reset_seconds);
            let (limit, left) = (u64::from(limit), u64::from(limit).saturating_sub(count));
            // A test address is refused in any window.
            let is_left = sent.remaining == left || is_test && sent.remaining == 0;
            sent.limit == limit && is_left && (is_reset || has_wrong_clock)
        }
        // A test address has the reply of a request that is not counted.
        (None, counted) => !matches!(counted, Some(PortResult::Counted { is_test: false, .. })),
        (Some(_), _) => false,
    }
}

fn response(reply: &Reply) -> Result<Response<&str>, String> {
    let response = Response::builder().status(reply.status);
    let response =
        reply.headers.iter().fold(response, |response, (name, value)| response.header(name, value));
    response.body(reply.body.as_str()).map_err(|error| error.to_string())
}
