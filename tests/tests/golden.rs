//! Compares servers in this process with the transcripts of `enrich-golden`.

#![allow(clippy::duplicate_mod, reason = "the two examples have one sample")]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_golden::{Kind, Report, Server, Stores, scenarios};
use enrich_host::{Services, run};
use enrich_lib::drive::Service;
use enrich_tower::EnrichLayer;
use tokio::net::TcpListener;

// Includes the examples, which run with test stores here.
#[allow(dead_code, reason = "their `main` and their sample")]
#[path = "../../enrich-lib/adapters/tower/examples/axum.rs"]
mod axum_gateway;

#[allow(dead_code, reason = "their `main` and their sample")]
#[path = "../../enrich-lib/adapters/tower/examples/hyper.rs"]
mod hyper_gateway;

/// Starts a server with the stores that the scenarios require, and runs all scenarios against it.
async fn play(kind: Kind, serve: impl AsyncFnOnce(TcpListener, Service)) -> Report {
    let scenarios = scenarios().unwrap();
    let stores = Stores::prepare(&scenarios);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server { address, kind, keys: stores.keys, faults: Some(stores.faults) };
    let playing = tokio::task::spawn_blocking(move || server.run(&scenarios));
    tokio::select! {
        () = serve(listener, stores.service) => unreachable!("it serves until it is dropped"),
        report = playing => report.unwrap(),
    }
}

#[tokio::test]
async fn the_host_answers_to_the_byte() {
    let report = play(Kind::Host, async |listener, service| {
        run(listener, Services::new(service), std::future::pending()).await;
    })
    .await;
    assert_eq!((&report.skipped[..], &report.failed[..]), (&[][..], &[][..]), "{report}");
    assert!(report.passed.len() >= 35, "{report}");
}

#[tokio::test]
async fn the_example_of_axum_answers_to_the_byte() {
    let report = play(Kind::Gateway, async |listener, service| {
        axum_gateway::serve(listener, EnrichLayer::new(service)).await.unwrap();
    })
    .await;
    assert_answers(&report);
}

#[tokio::test]
async fn the_example_of_hyper_answers_to_the_byte() {
    let report = play(Kind::Gateway, async |listener, service| {
        match hyper_gateway::serve(listener, EnrichLayer::new(service)).await.unwrap() {}
    })
    .await;
    assert_answers(&report);
}

/// Checks that all scenarios pass, except those that apply to the `enrich` server only.
fn assert_answers(report: &Report) {
    assert_eq!(report.failed, [], "{report}");
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| name.as_str()).collect();
    let hosts_only = [
        "body-not-wanted",
        "broken-chunks",
        "cut-off",
        "half-closed",
        "head-limits",
        "no-http",
        "nothing-behind-garbage",
        "other-paths",
    ];
    assert_eq!(skipped, hosts_only);
    assert!(report.skipped.iter().all(|(_, reason)| reason.starts_with("the host's only: ")), "{report}");
    assert!(report.passed.len() >= 30, "{report}");
}
