//! Windows that several nodes share: named counters in one place.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;

use crate::clock::{SKEW_MAX, right_time};

/// Counters by name. Each is kept past its window's end for as long as a node's clock may be behind: forgotten sooner, it
/// would begin anew, and the limit with it.
#[derive(Debug, Default)]
pub(crate) struct SharedWindows(Mutex<BTreeMap<(WorkspaceId, u64), Counter>>);

#[derive(Debug)]
struct Counter {
    count: u64,
    closes_at: Timestamp,
}

#[async_trait]
impl Windows for SharedWindows {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let now = right_time();
        // Every critical section leaves the counters whole.
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| now <= counter.closes_at + SKEW_MAX);
        let name = (window.workspace().clone(), window.number());
        let counter = counters.entry(name).or_insert(Counter { count: 0, closes_at: window.closes_at() });
        counter.count += 1;
        Ok(counter.count)
    }
}
