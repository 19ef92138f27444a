//! A gateway as someone writes it from the documentation of `enrich-lib`: axum, keys `sk_live_…`, and credits
//! in its own PostgreSQL tables. The README says what was tested on what.
//!
//! `database` connections · `keys` · `credits` · here the gateway.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod database;
pub mod keys;
pub mod credits;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::{Directory, WindowTable};
use enrich_lib::model::ProfileUrl;
use enrich_lib::receipt::ReceiptKey;
use enrich_tower::EnrichLayer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{interval, sleep};

use crate::credits::CreditTable;
use crate::database::Database;
use crate::keys::{ApiKeys, LiveKeys};

const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Holds of lookups that take longer expire.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the gateway until `stop`, with one person. All nodes have the same `receipts`.
pub async fn run(
    listener: TcpListener,
    database: Arc<Database>,
    receipts: ReceiptKey,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let credits = Arc::new(CreditTable(database.clone()));
    let people = Arc::new(Directory::default());
    people.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
    let (keys, windows) = (Arc::new(ApiKeys(database)), Arc::new(WindowTable::default()));
    let mut service = Service::new(keys, windows, credits.clone(), people);
    service.policy = Arc::new(Policy::default().with_receipts(receipts));
    let enrich = EnrichLayer::new(service);
    let expiry = tokio::spawn(expire_holds(credits));
    let (stopped, stopping) = oneshot::channel::<()>();
    let serving = async {
        let serving = axum::serve(listener, routes(enrich.clone()));
        serving.with_graceful_shutdown(async { drop(stopping.await) }).await?;
        enrich.drain().await;
        Ok(())
    };
    // A spend whose outcome is unknown may never complete.
    let too_late = async {
        stop.await;
        drop(stopped);
        sleep(STOP_TIMEOUT).await;
    };
    let served = tokio::select! { served = serving => served, () = too_late => Ok(()) };
    expiry.abort();
    served
}

/// Returns the routes of the gateway. The layer answers lookups.
pub fn routes(enrich: EnrichLayer) -> Router {
    Router::new()
        .route("/health", get(async || "ok"))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(enrich.key_format(Arc::new(LiveKeys)))
}

/// Gives back expired holds every second. Never returns.
pub async fn expire_holds(credits: Arc<CreditTable>) {
    let mut interval = interval(EXPIRY_INTERVAL);
    loop {
        interval.tick().await;
        // After an error, the next call gives them back.
        let _ = credits.expire().await;
    }
}
