//! Lookups over HTTPS, whose connections use HTTP/2.

use std::time::Duration;

use enrich_tests::eventually;
use enrich_tests::servers::Proxy;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{bulk, start, table, wait};
use crate::enrich::Enrich;
use crate::enrich::Server;
use crate::enrich::vendor::{Behavior, Vendor};

const TLS: &str = "tls = { cert = \"cert.pem\", key = \"key.pem\" }";

/// Starts a server whose vendor receives up to 200 requests at a time, and does not reply before it must.
fn serve(rows: usize) -> (Enrich, Server, Vendor, String) {
    let (enrich, key) = Enrich::with_key(1_000, 1_000);
    enrich.certificate("127.0.0.1");
    enrich.file("crm.csv", table(rows));
    let vendor = Vendor::that(Behavior::Hangs);
    let config = vendor.configure(&enrich, TLS);
    let limits = format!("{}limits = {{ concurrency = 200 }}\n", std::fs::read_to_string(&config).unwrap());
    std::fs::write(&config, limits).unwrap();
    let server = enrich.serve(&["--config", config.to_str().unwrap()]);
    (enrich, server, vendor, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_concurrent_lookups_are_sent() {
    let (enrich, server, vendor, key) = serve(150);
    let args = ["crm.csv", "--concurrency", "150", "--tls-ca", "cert.pem"];
    let run = start(&enrich, &bulk(&server.url, &key, &args));
    eventually("the vendor has a request of each", async || vendor.in_flight_max() == 150).await;
    vendor.set(Behavior::Matches("ada"));
    let ran = wait(run);
    assert_eq!(ran.stdout.matches(",found,").count(), 150, "{}", ran.stderr);
}

/// The connection stays open, but its data is lost, for example by a firewall that restarted.
#[tokio::test(flavor = "multi_thread")]
async fn lookup_is_repeated_on_another_connection_before_it_times_out() {
    let (enrich, server, vendor, key) = serve(1);
    let proxy = Proxy::start(server.url.rsplit_once(':').unwrap().1.parse().unwrap()).await;
    let url = format!("https://127.0.0.1:{}", proxy.port());
    let run = start(&enrich, &bulk(&url, &key, &["crm.csv", "--tls-ca", "cert.pem"]));
    eventually("the lookup is in progress", async || vendor.in_flight_max() == 1).await;
    proxy.lose_open();
    vendor.set(Behavior::Matches("ada"));
    let ran = timeout(Duration::from_secs(25), spawn_blocking(|| wait(run))).await.unwrap().unwrap();
    assert!(ran.stdout.contains(",found,"), "{}{}", ran.stdout, ran.stderr);
}
