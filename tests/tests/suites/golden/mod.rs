//! Compares servers in this process with the transcripts of `enrich-golden`.

#![allow(clippy::duplicate_mod, reason = "both examples include the sample")]

mod openapi;

use enrich_golden::{Kind, Report, Server, Stores, over_tcp, scenarios};
use enrich_host::{Services, run};
use enrich_lib::drive::Service;
use enrich_tower::EnrichLayer;
use tokio::net::TcpListener;

// Includes the examples, which run with test stores here.
#[allow(dead_code, reason = "unused: `main` and the sample")]
#[path = "../../../../enrich-lib/adapters/tower/examples/axum.rs"]
mod axum_gateway;

#[allow(dead_code, reason = "unused: `main` and the sample")]
#[path = "../../../../enrich-lib/adapters/tower/examples/hyper.rs"]
mod hyper_gateway;

/// Starts a server with the stores that the scenarios require, and runs all scenarios against it.
async fn play(kind: Kind, serve: impl AsyncFnOnce(TcpListener, Service)) -> Report {
    let scenarios = scenarios().unwrap();
    let stores = Stores::prepare(&scenarios);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(over_tcp(address), kind, stores.keys).with_faults(stores.faults);
    let playing = tokio::task::spawn_blocking(move || server.run(&scenarios));
    tokio::select! {
        () = serve(listener, stores.service) => unreachable!("the server runs until it is dropped"),
        report = playing => report.unwrap(),
    }
}

#[tokio::test]
async fn host_matches_byte_by_byte() {
    let report = play(Kind::Host, async |listener, service| {
        run(listener, Services::new(service), std::future::pending()).await;
    })
    .await;
    assert_eq!((&report.skipped[..], &report.failed[..]), (&[][..], &[][..]), "{report}");
    assert!(report.passed.len() >= 55, "{report}");
}

#[tokio::test]
async fn axum_example_matches() {
    let report = play(Kind::Gateway, async |listener, service| {
        axum_gateway::serve(listener, EnrichLayer::new(service)).await.unwrap();
    })
    .await;
    assert_gateway(&report);
}

#[tokio::test]
async fn hyper_example_matches() {
    let report =
        play(Kind::Gateway, async |listener, service| match hyper_gateway::serve(listener, service).await {})
            .await;
    assert_gateway(&report);
}

/// Checks that all scenarios pass, except those that apply to the `enrich` server only.
fn assert_gateway(report: &Report) {
    assert_eq!(report.failed, [], "{report}");
    assert!(report.skipped.iter().all(|(_, reason)| reason.starts_with("host only: ")), "{report}");
    assert_eq!(report.skipped.len(), 14, "{report}");
}
