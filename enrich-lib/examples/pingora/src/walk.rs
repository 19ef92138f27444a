//! The steps of one lookup: calls each store with a timeout, and passes the results to the state machine.
//!
//! [`enrich_lib::drive`] does the same over the ports, without timeouts. A gateway with its own I/O calls it in these lines.
//! The wrong order of the lines does not compile.

use std::time::Duration;

use enrich_lib::drive::Service;
use enrich_lib::lookup::{Lookup, Reply, Request};
use enrich_lib::model::{Arrival, WorkspaceId};
use enrich_lib::refusal::PortError;
use tokio::time::timeout;

// Their sum is less than `Policy::hold_ttl`, so that no hold expires during its lookup.
const KEY_TIME_MAX: Duration = Duration::from_secs(1);
/// A rate-limit store that is slower than this counts as unavailable.
const COUNT_TIME_MAX: Duration = Duration::from_millis(100);
const HOLD_TIME_MAX: Duration = Duration::from_secs(5);
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(10);
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// Answers one request and logs it.
pub async fn look_up(stores: Service, arrival: Arrival, request: Request) -> Reply {
    let (Ok(reply) | Err(reply)) = walk(&stores, arrival, request).await;
    log(&reply);
    reply
}

/// Runs one lookup. The order of the statements is the order of the checks.
async fn walk(stores: &Service, arrival: Arrival, request: Request) -> Result<Reply, Reply> {
    let lookup = Lookup::receive(&stores.policy, arrival, request)?; // 401
    let found = in_time(KEY_TIME_MAX, stores.keys.find(lookup.key())).await;
    let lookup = lookup.identify(found)?; // 401, 500
    let counted = in_time(COUNT_TIME_MAX, stores.windows.count(lookup.window())).await;
    let lookup = lookup.admit(counted)?; // 429, 503
    let lookup = lookup.validate()?; // 400 ×3
    let held = in_time(HOLD_TIME_MAX, stores.credits.hold(lookup.hold())).await;
    let lookup = lookup.fund(held)?; // 402, 500
    let found = in_time(RESOLVE_TIME_MAX, stores.resolver.find(lookup.query())).await;
    let lookup = lookup.resolve(found); // no `?`: a granted hold is always settled
    let settled = in_time(SETTLE_TIME_MAX, stores.credits.settle(lookup.hold(), lookup.settlement())).await;
    Ok(lookup.settle(settled)) // 200, 404, 500, 502
}

/// Returns the result of a store, or an error after a timeout.
async fn in_time<T>(
    time_max: Duration,
    answer: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    let late = |_| Err(PortError::new(format!("no answer in {time_max:?}")));
    timeout(time_max, answer).await.unwrap_or_else(late)
}

/// Logs one line per lookup, without an email, key or profile.
fn log(reply: &Reply) {
    let (id, outcome, status, credits) =
        (reply.lookup_id, reply.outcome(), reply.status(), reply.credits_spent);
    let workspace = reply.workspace.as_ref().map_or("-", WorkspaceId::as_str);
    match &reply.error {
        None => log::info!("{id} workspace={workspace} {outcome} status={status} credits={credits}"),
        Some(error) => {
            log::warn!(
                "{id} workspace={workspace} {outcome} status={status} credits={credits} error={error}"
            );
        }
    }
}
