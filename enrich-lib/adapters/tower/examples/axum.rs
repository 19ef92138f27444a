//! An axum gateway with the enrichment layer: `cargo run -p enrich-tower --example axum [ADDRESS]`.

mod sample;

use std::io;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use enrich_tower::EnrichLayer;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve(sample::listener().await?, EnrichLayer::new(sample::service()?)).await?;
    Ok(())
}

/// Serves lookups and the gateway's own paths. The layer comes last: it also answers other methods on the
/// path of lookups, and the fallbacks apply to all other paths only.
pub(crate) async fn serve(listener: TcpListener, enrich: EnrichLayer) -> io::Result<()> {
    let gateway = Router::new()
        .route("/hello", get(async || "hello\n"))
        .fallback(async || (StatusCode::NOT_FOUND, "no such page\n"))
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "use GET\n"))
        .layer(enrich.clone());
    let signal = stopped()?;
    let (stop, stopping) = oneshot::channel::<()>();
    let serving = async {
        axum::serve(listener, gateway).with_graceful_shutdown(async { drop(stopping.await) }).await?;
        enrich.drain().await;
        Ok(())
    };
    // A spend whose outcome is unknown may never complete.
    let timeout = async {
        signal.await;
        drop(stop);
        sleep(Duration::from_secs(15)).await;
    };
    tokio::select! { served = serving => served, () = timeout => Ok(()) }
}

/// Waits for Ctrl-C, or for the SIGTERM of a container.
fn stopped() -> io::Result<impl Future<Output = ()>> {
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}
