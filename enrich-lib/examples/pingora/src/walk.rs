//! One lookup, by hand: the gateway asks its stores, waits so long for each, and tells the chain what they answered.
//!
//! [`enrich_lib::drive`] does the same over the ports, without an end to its patience. A gateway with I/O of its own puts
//! it into these lines; a wrong order of them does not compile.

use std::time::Duration;

use enrich_lib::drive::Service;
use enrich_lib::lookup::{Lookup, Reply, Request};
use enrich_lib::model::{Arrival, WorkspaceId};
use enrich_lib::refusal::PortError;
use tokio::time::timeout;

// Together less than `Policy::hold_ttl`, or holds would expire under their lookups.
const KEY_TIME_MAX: Duration = Duration::from_secs(1);
/// A limiter that is slower than this is down.
const COUNT_TIME_MAX: Duration = Duration::from_millis(100);
const HOLD_TIME_MAX: Duration = Duration::from_secs(5);
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(10);
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// Answers one request, and logs it.
pub async fn look_up(stores: Service, arrival: Arrival, request: Request) -> Reply {
    let (Ok(reply) | Err(reply)) = walk(&stores, arrival, request).await;
    log(&reply);
    reply
}

/// The order of these lines is the order of the checks.
async fn walk(stores: &Service, arrival: Arrival, request: Request) -> Result<Reply, Reply> {
    let lookup = Lookup::receive(&stores.policy, arrival, request)?; // 401
    let found = in_time(KEY_TIME_MAX, stores.keys.find(lookup.key())).await;
    let lookup = lookup.identify(found)?; // 401, 500
    let counted = in_time(COUNT_TIME_MAX, stores.windows.count(lookup.window())).await;
    let lookup = lookup.admit(counted)?; // 429, 503
    let lookup = lookup.read()?; // 400 ×3
    let held = in_time(HOLD_TIME_MAX, stores.credits.hold(lookup.hold())).await;
    let lookup = lookup.fund(held)?; // 402, 500
    let found = in_time(RESOLVE_TIME_MAX, stores.resolver.find(lookup.query())).await;
    let lookup = lookup.finish(found); // no `?`: a granted hold is always settled
    let settled = in_time(SETTLE_TIME_MAX, stores.credits.settle(lookup.hold(), lookup.settlement())).await;
    Ok(lookup.close(settled)) // 200, 404, 500, 502
}

/// The answer of a store, or its failure to give one in time.
async fn in_time<T>(
    time_max: Duration,
    answer: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    let late = |_| Err(PortError::new(format!("no answer in {time_max:?}")));
    timeout(time_max, answer).await.unwrap_or_else(late)
}

/// One line a lookup, and never an email, a key or a profile in it.
fn log(reply: &Reply) {
    let (id, outcome, status, credits) =
        (reply.lookup_id, reply.outcome(), reply.status(), reply.credits_spent);
    let workspace = reply.workspace.as_ref().map_or("-", WorkspaceId::as_str);
    match &reply.fault {
        None => log::info!("{id} workspace={workspace} {outcome} status={status} credits={credits}"),
        Some(fault) => {
            log::warn!(
                "{id} workspace={workspace} {outcome} status={status} credits={credits} fault={fault}"
            );
        }
    }
}
