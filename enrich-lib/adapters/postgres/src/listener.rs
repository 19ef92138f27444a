//! A connection that listens for what changed in the store, so that nodes need not wait for their next tick to see it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::connect::Server;
use crate::error::StoreError;
use crate::pool::Client;

/// How often the connection is tried: one whose other end is gone says nothing either.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// How long to wait before connecting again.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Wakes who waits for `changed` whenever the store says that something did, for ever.
pub(crate) async fn run(server: Server, deadline: Duration, changed: Arc<Notify>) {
    let mut pause = PAUSE_FIRST;
    loop {
        if let Ok(Ok(mut client)) = timeout(deadline, listen(&server, deadline, &changed)).await {
            pause = PAUSE_FIRST;
            // Whatever changed until now was told to nobody here.
            changed.notify_one();
            while let Ok(Ok(_)) = timeout(deadline, client.simple_query("")).await {
                let _ = timeout(TRY_EVERY, client.closed()).await;
            }
        }
        sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn listen(server: &Server, deadline: Duration, changed: &Arc<Notify>) -> Result<Client, StoreError> {
    let changed = changed.clone();
    let client = Client::connect(server, deadline, move || changed.notify_one()).await?;
    client.batch_execute("LISTEN enrich").await?;
    Ok(client)
}
