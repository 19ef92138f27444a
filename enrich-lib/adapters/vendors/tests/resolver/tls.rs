//! A vendor over HTTPS.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind::{InvalidResponse, Unavailable};
use enrich_vendors::provider::Client;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::{NAME, Outcome, description, failed, look_up, provider, query};

/// Starts an HTTPS server that offers `protocols`. Returns its URL and its certificate.
async fn vendor(protocols: &[&str]) -> (String, CertificateDer<'static>) {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = issued.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(tls) = acceptor.accept(tcp).await {
                let count = AtomicU32::new(0);
                let service = service_fn(move |request| answer(request, count.fetch_add(1, Relaxed)));
                let server = auto::Builder::new(TokioExecutor::new());
                // Connections are served one after another, so the test hangs unless all requests share one.
                let _ = server.serve_connection(TokioIo::new(tls), service).await;
            }
        }
    });
    (format!("https://localhost:{port}"), certificate)
}

/// Answers the first request with 404 and a long body, refuses the fourth, and answers all others with a profile whose
/// name contains the HTTP version.
async fn answer(request: Request<Incoming>, count: u32) -> Result<Response<Full<Bytes>>, h2::Error> {
    if count == 3 {
        return Err(h2::Reason::REFUSED_STREAM.into());
    }
    let version = if request.version() == Version::HTTP_2 { "h2" } else { "h1" };
    let body = format!(r#"{{"score": 95, "person": {{"linkedin": "linkedin.com/in/{NAME}-{version}"}}}}"#);
    let (status, body) = if count == 0 { (404, "x".repeat(100_000)) } else { (200, body) };
    Ok(Response::builder().status(status).body(Full::new(body.into())).unwrap())
}

/// Returns a client that trusts only this certificate.
fn trusting(certificate: CertificateDer<'static>) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
    Client::over(tls.wrap_connector(tcp))
}

#[tokio::test]
async fn uses_http2_if_offered_and_one_connection_and_may_repeat_what_it_refused() {
    for (protocols, version) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "h1"), (&[], "h1")] {
        let (base, certificate) = vendor(protocols).await;
        let provider = provider(description(&base, 20_000), trusting(certificate));
        let found = || Outcome::Found(format!("{NAME}-{version}"));
        for outcome in [Outcome::NoMatch, found(), found()] {
            assert_eq!(look_up(&provider).await, outcome, "{protocols:?}");
        }
        // Over HTTP/1.1, it may have been processed.
        let kind = if version == "h2" { Unavailable } else { InvalidResponse };
        assert_eq!(look_up(&provider).await, failed(kind), "{protocols:?}");
    }
}

#[tokio::test]
async fn untrusted_certificate_is_reported_and_nothing_is_sent() {
    let (base, _) = vendor(&[]).await;
    let provider = provider(description(&base, 20_000), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, failed(Unavailable));
    let error = provider.find(&query()).await.unwrap_err();
    let error = format!("{error:#}");
    assert_eq!(error, "cannot connect: the certificate is not trusted: the vendor is unavailable");
}

#[tokio::test]
async fn vendor_that_does_not_end_the_handshake_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let provider = provider(description(&base, 20_000), Client::new().unwrap());
    let query = query();
    let accepting = async {
        let accepted = listener.accept().await.unwrap();
        tokio::time::pause();
        accepted
    };
    let (found, _silent) = tokio::join!(provider.find(&query), accepting);
    let error = format!("{:#}", found.unwrap_err());
    assert_eq!(error, "cannot connect: the TCP and TLS handshakes took too long: the vendor is unavailable");
}
