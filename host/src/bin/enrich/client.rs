//! The client of a server: what `lookup` asks once, and `bulk` many times.

use std::error::Error;
use std::iter::successors;
use std::path::Path;
use std::time::Duration;

use enrich_lib::wire;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::args::ServerArgs;
use crate::failure::{Exit, Failure};

/// Longer than the server takes at most.
const DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Shorter than servers keep an idle connection: a request does not meet one that is being closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// A server and a key for it. Its connections are kept and used again.
pub struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    uri: Uri,
    authorization: HeaderValue,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is no answer.
pub enum NoAnswer {
    /// There is no connection: nothing was asked.
    Unreachable(String),
    /// The connection broke: whether the lookup was made is not known.
    Broken(String),
    /// None within the deadline: whether the lookup was made is not known.
    Late,
}

impl Client {
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let url = args.url.clone();
        let uri = format!("{}{}", url.trim_end_matches('/'), wire::PATH).parse::<Uri>().unwrap_or_default();
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            let failure = Failure::usage(format!("{url} is no http or https URL"));
            return Err(failure.advise("such as http://127.0.0.1:8080"));
        }
        // The error does not quote the key.
        let key = Some(&args.key).filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
        let mut authorization = key
            .and_then(|key| HeaderValue::from_str(&format!("Bearer {key}")).ok())
            .ok_or_else(|| Failure::usage("the key has characters that no key has"))?;
        authorization.set_sensitive(true);
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .build(connector(uri.scheme_str() == Some("https"), args.tls_ca.as_deref())?);
        Ok(Self { http, url, uri, authorization })
    }

    /// Makes one lookup, once.
    pub async fn enrich(&self, email: &str) -> Result<Answer, NoAnswer> {
        timeout(DEADLINE, self.ask(email)).await.unwrap_or(Err(NoAnswer::Late))
    }

    async fn ask(&self, email: &str) -> Result<Answer, NoAnswer> {
        let mut request = Request::new(Full::from(serde_json::json!({ "email": email }).to_string()));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.http.request(request).await.map_err(|e| {
            if e.is_connect() { NoAnswer::Unreachable(root(&e)) } else { NoAnswer::Broken(root(&e)) }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| NoAnswer::Broken(root(e.as_ref())))?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// What to tell when there is no answer.
    pub fn failure(&self, no_answer: NoAnswer) -> Failure {
        let url = &self.url;
        match no_answer {
            NoAnswer::Unreachable(why) => {
                let failure = Failure::new(format!("can't reach {url}: {why}")).exit(Exit::Unreachable);
                failure.advise(if why.contains("certificate") {
                    "--tls-ca FILE trusts the certificates in a PEM file"
                } else {
                    "is a server running there? `enrich serve` starts one; --url names another, with http:// or https://"
                })
            }
            NoAnswer::Broken(why) => Failure::new(format!("the answer of {url} broke off: {why}")),
            NoAnswer::Late => Failure::new(format!("{url} did not answer in {DEADLINE:?}")),
        }
    }
}

fn root(error: &(dyn Error + 'static)) -> String {
    successors(Some(error), |&error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

fn connector(is_https: bool, ca: Option<&Path>) -> Result<HttpsConnector<HttpConnector>, Failure> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let unusable = |e: rustls::pki_types::pem::Error| {
                Failure::usage(format!("can't use {}: {e}", path.display()))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(unusable)? {
                let certificate = certificate.map_err(unusable)?;
                roots.add(certificate).map_err(|e| Failure::file("use", path, e))?;
            }
        }
        None if is_https => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {} // reading the system's certificates takes its time
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
