//! `enrich lookup`: the smallest client.

use std::error::Error;
use std::iter::successors;
use std::path::Path;
use std::time::Duration;

use enrich_lib::wire;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::args::LookupArgs;
use crate::failure::Failure;
use crate::output;

/// Longer than the server takes at most.
const DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub fn run(args: &LookupArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("can't start: {e}")))?;
    let asked = runtime.block_on(async { tokio::time::timeout(DEADLINE, ask(args)).await });
    let answer =
        asked.map_err(|_| Failure::new(format!("{} did not answer in {DEADLINE:?}", args.url)))??;
    match answer.status {
        StatusCode::OK | StatusCode::NOT_FOUND if answer.body.contains("\"lookup_id\"") => {
            output::line(&answer.body);
            Ok(())
        }
        status => {
            let failure = Failure::new(format!("{status}: {}", answer.body));
            Err(match advice(status, answer.retry_after.as_deref()) {
                Some(advice) => failure.advise(advice),
                None => failure,
            })
        }
    }
}

struct Answer {
    status: StatusCode,
    retry_after: Option<String>,
    body: String,
}

async fn ask(args: &LookupArgs) -> Result<Answer, Failure> {
    let client = Client::builder(TokioExecutor::new()).build(connector(args.tls_ca.as_deref())?);
    let response = client.request(request(args)?).await.map_err(|e| unreachable(args, &e))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|e| Failure::new(format!("the answer of {} broke off: {e}", args.url)))?;
    Ok(Answer {
        status: head.status,
        retry_after: head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned),
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    })
}

fn request(args: &LookupArgs) -> Result<Request<Full<Bytes>>, Failure> {
    let uri = format!("{}{}", args.url.trim_end_matches('/'), wire::PATH).parse::<Uri>().unwrap_or_default();
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        let failure = Failure::new(format!("{} is no http or https URL", args.url));
        return Err(failure.advise("such as http://127.0.0.1:8080"));
    }
    // Neither the key nor what is wrong with it is repeated.
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", args.key))
        .map_err(|_| Failure::new("the key has characters that no key has"))?;
    authorization.set_sensitive(true);
    let body = serde_json::json!({ "email": args.email }).to_string();
    Request::post(uri)
        .header(AUTHORIZATION, authorization)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body))
        .map_err(|e| Failure::new(e.to_string()))
}

fn connector(ca: Option<&Path>) -> Result<HttpsConnector<HttpConnector>, Failure> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let unusable =
                |e: rustls::pki_types::pem::Error| Failure::new(format!("can't use {}: {e}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(unusable)? {
                let certificate = certificate.map_err(unusable)?;
                roots.add(certificate).map_err(|e| Failure::file("use", path, e))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(|e| Failure::new(e.to_string()))?.with_root_certificates(roots).with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .build())
}

fn unreachable(args: &LookupArgs, error: &dyn Error) -> Failure {
    let why =
        successors(Some(error), |&error| error.source()).last().map_or_else(String::new, ToString::to_string);
    let failure = Failure::new(format!("can't reach {}: {why}", args.url));
    failure.advise(if why.contains("certificate") {
        "--tls-ca FILE trusts the certificates in a PEM file"
    } else {
        "is a server running there? `enrich serve` starts one; --url names another, with http:// or https://"
    })
}

fn advice(status: StatusCode, retry_after: Option<&str>) -> Option<String> {
    match status.as_u16() {
        400 => Some("the server takes one personal email".to_owned()),
        401 => Some("`enrich key create WORKSPACE LABEL` makes a new key".to_owned()),
        402 => Some("`enrich credits grant WORKSPACE N` gives the workspace more".to_owned()),
        429 => Some(format!("try again in {} s", retry_after.unwrap_or("a few"))),
        500 | 502 | 503 => Some("try again; the server's log says why".to_owned()),
        _ => None,
    }
}
