//! HTTPS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::tls::{TlsError, load};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use crate::client::{Client, good};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn serves_over_tls_and_offers_both_versions() {
    for protocol in ["h2", "http/1.1"] {
        let (config, connector) = pair(protocol);
        let world = World::with(|services| services.tls = Some(config));
        let name = ServerName::try_from("api.example").unwrap();
        let tls = connector.connect(name, world.dial(16 * 1_024)).await.unwrap();
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        if protocol == "http/1.1" {
            let mut client = Client::new(tls);
            assert_eq!(client.ask(good()).await.status, 200);
            sleep(Duration::from_secs(30)).await;
            assert_eq!(client.ask(good()).await.status, 200);
            assert!(client.ask("garbage\r\n\r\n").await.is_invalid_request());
            assert_eq!(client.rest().await, "");
        } else {
            let mut client = crate::http2::Client::over(tls).await;
            assert_eq!(client.ask(crate::http2::good()).await.0, 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn closes_a_stalled_handshake_after_10_s() {
    let (config, _) = pair("http/1.1");
    let world = World::with(|services| services.tls = Some(config));
    let mut client = world.connect();
    client.send(b"\x16\x03\x01").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 10);
}

#[tokio::test(start_paused = true)]
async fn handshake_does_not_delay_shutdown() {
    let (config, _) = pair("http/1.1");
    let world = World::with(|services| services.tls = Some(config));
    let mut client = world.connect();
    client.send(b"\x16\x03\x01").await;
    tokio::task::yield_now().await;
    world.stop.cancel();
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 0);
}

#[test]
fn reports_the_unusable_file() {
    let files = Files::new();
    let other = Files::new();
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let missing = files.path("missing.pem");
    assert!(matches!(load(&missing, &key), Err(TlsError::Unreadable { path, .. }) if path == missing));
    assert!(matches!(load(&key, &key), Err(TlsError::NoCertificate(path)) if path == key));
    assert!(matches!(load(&cert, &cert), Err(TlsError::NoKey(path)) if path == cert));
    let fault = load(&cert, &other.path("key.pem")).unwrap_err();
    assert!(matches!(fault, TlsError::Unusable { .. }) && fault.to_string().contains("cert.pem"), "{fault}");
}

fn pair(protocol: &str) -> (Arc<ServerConfig>, TlsConnector) {
    let files = Files::new();
    let server = load(&files.path("cert.pem"), &files.path("key.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(files.made.cert.der().clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![protocol.into()];
    (server, Arc::new(client).into())
}

struct Files {
    dir: TempDir,
    made: CertifiedKey<rcgen::KeyPair>,
}

impl Files {
    fn new() -> Self {
        let made = generate_simple_self_signed(["api.example".to_owned()]).unwrap();
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { dir, made }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
