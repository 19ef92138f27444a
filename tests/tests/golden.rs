//! Servers in this process, held against the transcripts of `enrich-golden`.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_golden::{Kind, Report, Server, Stores, scenarios};
use enrich_host::{Services, run};
use enrich_lib::drive::Service;
use tokio::net::TcpListener;

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
