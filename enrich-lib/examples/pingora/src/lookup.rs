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
const KEY_TIMEOUT: Duration = Duration::from_secs(1);
/// A rate-limit store that is slower than this counts as unavailable.
const COUNT_TIMEOUT: Duration = Duration::from_millis(100);
const HOLD_TIMEOUT: Duration = Duration::from_secs(5);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers one request and logs it.
pub async fn look_up(stores: Service, arrival: Arrival, request: Request) -> Reply {
    let (Ok(reply) | Err(reply)) = run(&stores, arrival, request).await;
    log(&reply);
    reply
}

/// Runs one lookup. The order of the statements is the order of the checks.
async fn run(stores: &Service, arrival: Arrival, request: Request) -> Result<Reply, Reply> {
    let lookup = Lookup::receive(&stores.policy, arrival, request)?; // 401
    let found = within(KEY_TIMEOUT, stores.keys.find(lookup.key())).await;
    let lookup = lookup.identify(found)?; // 401, 500
    let counted = within(COUNT_TIMEOUT, stores.windows.count(lookup.window())).await;
    let lookup = lookup.admit(counted)?; // 429, 503
    let lookup = lookup.validate()?; // 400 ×3
    let held = within(HOLD_TIMEOUT, stores.credits.hold(lookup.hold())).await;
    let lookup = lookup.fund(held)?; // 402, 500
    let found = within(RESOLVE_TIMEOUT, stores.resolver.find(lookup.query())).await;
    let lookup = lookup.resolve(found); // no `?`: a granted hold is always settled
    let settled = within(SETTLE_TIMEOUT, stores.credits.settle(lookup.hold(), lookup.settlement())).await;
    Ok(lookup.settle(settled)) // 200, 404, 500, 502
}

/// Returns the result of a store, or an error after a timeout.
async fn within<T>(
    limit: Duration,
    result: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    let timed_out = |_| Err(PortError::new(format!("no response within {limit:?}")));
    timeout(limit, result).await.unwrap_or_else(timed_out)
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
                "{id} workspace={workspace} {outcome} status={status} credits={credits} error={error:#}"
            );
        }
    }
}
