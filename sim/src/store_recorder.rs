//! The innermost layer around a credit store. It records the store's operations even when their results do not reach the
//! host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::LookupId;
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;

use crate::event::{Event, StoreEffect};
use crate::trace::Trace;

/// The simulated time of a store: that of its last tick.
#[derive(Debug, Default)]
pub(crate) struct StoreTime(AtomicU64);

impl StoreTime {
    pub(crate) fn set(&self, now: Duration) {
        self.0.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A credit store whose operations are recorded in the trace.
pub(crate) struct StoreRecorder {
    pub(crate) credits: Arc<dyn Credits>,
    pub(crate) trace: Trace,
    pub(crate) time: Arc<StoreTime>,
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
        let workspace = hold.workspace.clone();
        let effect = match &held {
            Ok(HoldOutcome::Granted) => {
                let (credits, expires_at) = (hold.credits, self.time.get() + hold.ttl);
                StoreEffect::Held { workspace, credits, expires_at }
            }
            Ok(HoldOutcome::Insufficient) => {
                StoreEffect::HoldRefused { workspace, reason: "too few credits".to_owned() }
            }
            Err(error) => StoreEffect::HoldRefused { workspace, reason: error.to_string() },
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
