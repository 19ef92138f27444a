//! Servers in this process, held against the transcripts of `enrich-golden`.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::convert::Infallible;

use axum::Router;
use axum::routing::get;
use enrich_golden::{Kind, Report, Server, Stores, scenarios};
use enrich_host::{Services, run};
use enrich_lib::drive::Service;
use enrich_tower::EnrichLayer;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

/// Serves what the scenarios take as given, and plays them.
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
async fn axum_with_the_layer_answers_to_the_byte() {
    let report = play(Kind::Gateway, async |listener, service| {
        let gateway = Router::new().route("/hello", get(async || "hello")).layer(EnrichLayer::new(service));
        axum::serve(listener, gateway).await.unwrap();
    })
    .await;
    assert_answers(&report);
}

#[tokio::test]
async fn hyper_with_the_layer_answers_to_the_byte() {
    let report = play(Kind::Gateway, async |listener, service| {
        let gateway = ServiceBuilder::new()
            .layer(EnrichLayer::new(service))
            .service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(tcp), TowerToHyperService::new(gateway.clone()));
            tokio::spawn(serving);
        }
    })
    .await;
    assert_answers(&report);
}

/// All of it, but for what is the host's only.
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
