//! The innermost layer around a credit store. It records the store's operations even when their results do not reach the
//! host.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::LookupId;
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;

use crate::event::{Event, StoreEffect};
use crate::trace::Trace;

/// A credit store whose operations are recorded in the trace.
pub(crate) struct StoreRecorder {
    pub(crate) credits: Arc<dyn Credits>,
    pub(crate) trace: Trace,
}

impl StoreRecorder {
    fn record(&self, lookup: LookupId, effect: StoreEffect) {
        self.trace.record(Event::StoreEffect(lookup, effect));
    }
}

#[async_trait]
impl Credits for StoreRecorder {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let held = self.credits.hold(hold).await;
        let (workspace, placed_at) = (hold.workspace.clone(), hold.placed_at);
        let effect = match &held {
            Ok(HoldOutcome::Granted) => {
                let (credits, expires_at) = (hold.credits, hold.expires_at);
                StoreEffect::Held { workspace, credits, placed_at, expires_at }
            }
            Ok(HoldOutcome::Insufficient) => {
                StoreEffect::HoldRefused { workspace, placed_at, reason: "too few credits".to_owned() }
            }
            Err(error) => StoreEffect::HoldRefused { workspace, placed_at, reason: error.to_string() },
        };
        self.record(hold.lookup_id, effect);
        held
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let settled = self.credits.settle(hold, settlement).await;
        let effect = match &settled {
            Ok(()) => StoreEffect::Settled(hold.workspace.clone(), settlement),
            Err(error) => StoreEffect::SettleRefused(error.to_string()),
        };
        self.record(hold.lookup_id, effect);
        settled
    }
}
