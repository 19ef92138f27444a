//! Compares servers in this process with the transcripts of `enrich-golden`.

#![allow(clippy::duplicate_mod, reason = "both examples include the sample")]

mod openapi;
mod proxy;

use std::collections::HashMap;
use std::sync::Arc;

use enrich_golden::{Connect, Kind, Report, Scenario, Server, Stores, over_tcp, scenarios};
use enrich_host::{Services, run};
use enrich_lib::drive::Service;
use enrich_lib::key::{ApiKey, KeyDigest, KeyFormat};
use enrich_lib::ports::{Keys, async_trait};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_tests::tls;
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
    play_on(Stores::prepare(&scenarios), scenarios, kind, serve).await
}

/// Starts a server with these stores, and runs the scenarios against it.
async fn play_on(
    stores: Stores,
    scenarios: Vec<Scenario>,
    kind: Kind,
    serve: impl AsyncFnOnce(TcpListener, Service),
) -> Report {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    play_over(over_tcp(address), listener, stores, scenarios, kind, serve).await
}

/// Runs the scenarios over connections of this kind.
async fn play_over(
    connect: Connect,
    listener: TcpListener,
    stores: Stores,
    scenarios: Vec<Scenario>,
    kind: Kind,
    serve: impl AsyncFnOnce(TcpListener, Service),
) -> Report {
    let server = Server::new(connect, kind, stores.keys).with_faults(stores.faults);
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

/// The keys of the transcripts with another prefix, as a gateway with keys of its own has them.
#[tokio::test]
async fn gateway_with_keys_of_another_format_matches() {
    let scenarios = scenarios().unwrap();
    let mut stores = Stores::prepare(&scenarios);
    let mut known = HashMap::new();
    let mut foreign = String::new();
    for line in stores.keys.to_string().lines() {
        let (names, key) = line.rsplit_once(' ').unwrap();
        // As long as before, because a transcript states the length of a body that contains a key.
        let live = format!("sk_live_{}", key[8..].replace('_', "0"));
        known.insert(KeyDigest::from_token(live.as_bytes()), ApiKey::parse(key).unwrap().digest());
        foreign += &format!("{names} {live}\n");
    }
    let keys = Arc::new(LiveKeys { known, inner: stores.service.keys.clone() });
    stores.service.keys = keys.clone();
    stores.keys = foreign.parse().unwrap();
    let report = play_on(stores, scenarios, Kind::Gateway, async |listener, service| {
        axum_gateway::serve(listener, EnrichLayer::new(service).key_format(keys)).await.unwrap();
    })
    .await;
    assert_gateway(&report);
}

/// Keys such as `sk_live_123`, found under the digests of the keys that they stand for.
struct LiveKeys {
    known: HashMap<KeyDigest, KeyDigest>,
    inner: Arc<dyn Keys>,
}

impl KeyFormat for LiveKeys {
    fn digest(&self, token: &[u8]) -> Option<KeyDigest> {
        let random = token.strip_prefix(b"sk_live_")?;
        random.iter().all(u8::is_ascii_alphanumeric).then(|| KeyDigest::from_token(token))
    }
}

#[async_trait]
impl Keys for LiveKeys {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.inner.find(self.known.get(key).unwrap_or(key)).await
    }
}

#[tokio::test]
async fn hyper_example_matches() {
    let report = play(Kind::Gateway, async |listener, service| {
        match hyper_gateway::serve(listener, service).await.unwrap() {}
    })
    .await;
    assert_gateway(&report);
}

#[tokio::test]
async fn host_matches_byte_by_byte_over_tls() {
    let scenarios = scenarios().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connect: Connect = Arc::new(move || {
        enrich_golden::with_tls(
            enrich_golden::connect(address)?,
            "127.0.0.1",
            Arc::new(tls::client(&["http/1.1"])),
        )
    });
    let stores = Stores::prepare(&scenarios);
    let report = play_over(connect, listener, stores, scenarios, Kind::Host, async |listener, service| {
        let services = Services { tls: Some(tls::server()), ..Services::new(service) };
        run(listener, services, std::future::pending()).await;
    })
    .await;
    assert_eq!((&report.skipped[..], &report.failed[..]), (&[][..], &[][..]), "{report}");
}

/// The scenarios are HTTP/1.1. A proxy forwards them to the host over HTTP/2.
#[tokio::test]
async fn host_matches_over_http2() {
    for is_tls in [false, true] {
        let report = play(Kind::Gateway, async |listener, service| {
            let host = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = host.local_addr().unwrap();
            let services = Services { tls: is_tls.then(tls::server), ..Services::new(service) };
            tokio::join!(
                run(host, services, std::future::pending()),
                proxy::forward(listener, is_tls, address)
            );
        })
        .await;
        assert_gateway(&report);
    }
}

/// Checks that all scenarios pass, except those that apply to the `enrich` server only.
fn assert_gateway(report: &Report) {
    assert_eq!(report.failed, [], "{report}");
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| name.as_str()).collect();
    let host_only = [
        "half-closed",
        "head-limits",
        "incomplete-request",
        "malformed-chunks",
        "malformed-http",
        "no-reply-after-malformed",
        "not-http",
        "other-paths",
        "oversized-body",
        "oversized-head",
        "rejected-continue",
        "repeated",
        "tls-on-plain-port",
        "truncated-body",
    ];
    assert_eq!(skipped, host_only);
    assert!(report.skipped.iter().all(|(_, reason)| reason.starts_with("host only: ")), "{report}");
    assert!(report.passed.len() >= 40, "{report}");
}
