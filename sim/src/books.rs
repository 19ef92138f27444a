//! The innermost layer around a credit store. It records the store's operations even when their results do not reach the
//! host.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::LookupId;
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;

use crate::event::{Deed, Event};
use crate::trace::Trace;

/// A credit store whose operations are recorded in the trace.
pub(crate) struct Books {
    pub(crate) credits: Arc<dyn Credits>,
    pub(crate) trace: Trace,
}

impl Books {
    fn note(&self, lookup: LookupId, deed: Deed) {
        self.trace.note(Event::Did(lookup, deed));
    }
}

#[async_trait]
impl Credits for Books {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let held = self.credits.hold(hold).await;
        let (workspace, placed_at) = (hold.workspace.clone(), hold.placed_at);
        let deed = match &held {
            Ok(HoldOutcome::Granted) => {
                let (credits, expires_at) = (hold.credits, hold.expires_at);
                Deed::Held { workspace, credits, placed_at, expires_at }
            }
            Ok(HoldOutcome::Insufficient) => {
                Deed::Denied { workspace, placed_at, why: "too few credits".to_owned() }
            }
            Err(fault) => Deed::Denied { workspace, placed_at, why: fault.to_string() },
        };
        self.note(hold.lookup_id, deed);
        held
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let settled = self.credits.settle(hold, settlement).await;
        let deed = match &settled {
            Ok(()) => Deed::Settled(hold.workspace.clone(), settlement),
            Err(fault) => Deed::Refused(fault.to_string()),
        };
        self.note(hold.lookup_id, deed);
        settled
    }
}
