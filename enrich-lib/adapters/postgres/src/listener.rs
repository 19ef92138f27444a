//! A connection that listens for change notifications, so that nodes react before their next tick.

use std::time::Duration;

use enrich_store::Backoff;
use tokio::time::{sleep, timeout};

use crate::connect::Server;
use crate::error::PostgresError;
use crate::pool::{CHECK_WRITABLE, Client};

/// The interval of connection checks. A dead peer is otherwise indistinguishable from a silent one.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The backoff before reconnecting.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Calls `notified` for every notification from the store. Reconnects after failures, also those of other connections, and
/// never returns.
pub(crate) async fn run(server: Server, limit: Duration, notified: impl Fn() + Clone + Send + 'static) {
    let mut backoff = BACKOFF;
    loop {
        let mut generations = server.generations();
        if let Ok(Ok(mut client)) = timeout(limit, listen(&server, limit, notified.clone())).await {
            backoff.reset();
            // Changes before the `LISTEN` were not notified.
            notified();
            while let Ok(Ok(())) = timeout(limit, client.batch_execute(CHECK_WRITABLE)).await {
                tokio::select! {
                    () = client.closed() => {}
                    _ = generations.changed() => break,
                    () = sleep(CHECK_INTERVAL) => {}
                }
            }
        }
        sleep(backoff.next_pause()).await;
    }
}

async fn listen(
    server: &Server,
    limit: Duration,
    notified: impl Fn() + Clone + Send + 'static,
) -> Result<Client, PostgresError> {
    let client = Client::connect(server, limit, notified).await?;
    client.batch_execute("LISTEN enrich").await?;
    Ok(client)
}
