//! An axum gateway with the enrichment layer: `cargo run -p enrich-tower --example axum [ADDRESS]`.

mod sample;

use std::io;

use axum::Router;
use axum::routing::get;
use enrich_tower::EnrichLayer;
use http::StatusCode;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve(sample::listener().await?, EnrichLayer::new(sample::service()?)).await?;
    Ok(())
}

/// Serves lookups and the gateway's own paths. The layer comes last: it also answers other methods on the
/// path of lookups, and the fallbacks apply to all other paths only.
pub(crate) async fn serve(listener: TcpListener, enrich: EnrichLayer) -> io::Result<()> {
    let lookups = enrich.lookups();
    let gateway = Router::new()
        .route("/hello", get(async || "hello\n"))
        .fallback(async || (StatusCode::NOT_FOUND, "no such page\n"))
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "use GET\n"))
        .layer(enrich);
    axum::serve(listener, gateway).with_graceful_shutdown(ctrl_c()).await?;
    lookups.close();
    lookups.wait().await; // for the lookups of disconnected clients
    Ok(())
}

async fn ctrl_c() {
    // Without a signal handler, serves until the process is killed.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
