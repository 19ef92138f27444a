//! A stalling disk, simulated by pausing the ledger's writer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use enrich_sqlite::Work;
use tokio::time::sleep;

use crate::faulty_port::ActiveFaults;

/// How often a stalled writer checks whether the stall is over.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a writer to completion, pausing it while its node's disk stalls.
pub(crate) async fn run_writer(mut work: Work, faults: Arc<ActiveFaults>) {
    let mut has_ended = false;
    while !has_ended {
        while faults.is_disk_stalled() {
            sleep(POLL_INTERVAL).await;
        }
        has_ended = poll_fn(|cx| {
            if faults.is_disk_stalled() { Poll::Ready(false) } else { work.as_mut().poll(cx).map(|()| true) }
        })
        .await;
    }
}
