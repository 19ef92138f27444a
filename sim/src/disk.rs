//! A stalling disk, simulated by pausing the ledger's writer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use enrich_sqlite::Work;
use tokio::time::sleep;

use crate::faulty::Faults;

/// How often a stalled writer checks whether the stall is over.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a writer to completion, pausing it while its node's disk stalls.
pub(crate) async fn write(mut work: Work, faults: Arc<Faults>) {
    let mut has_ended = false;
    while !has_ended {
        while faults.is_stalled() {
            sleep(PAUSE).await;
        }
        has_ended = poll_fn(|cx| {
            if faults.is_stalled() { Poll::Ready(false) } else { work.as_mut().poll(cx).map(|()| true) }
        })
        .await;
    }
}
