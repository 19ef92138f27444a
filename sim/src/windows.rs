//! Rate-limit windows in memory, shared by several nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;

use crate::clock::correct_time;

/// Named counters. Each is dropped as early as the port's contract permits.
#[derive(Debug, Default)]
pub(crate) struct SharedWindows(Mutex<BTreeMap<(WorkspaceId, u64), Counter>>);

#[derive(Debug)]
struct Counter {
    count: u64,
    expires_at: Timestamp,
}

#[async_trait]
impl Windows for SharedWindows {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let now = correct_time();
        // Poisoning is ignored: every critical section leaves the counters consistent.
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| now < counter.expires_at);
        let name = (window.workspace().clone(), window.number());
        let counter = counters.entry(name).or_insert(Counter { count: 0, expires_at: window.expires_at() });
        counter.count += 1;
        Ok(counter.count)
    }
}
