//! The HTTP client of `lookup` and `bulk`. `key` reads the API key; `tls` decides which servers are trusted.

mod key;
mod tls;

use std::error::Error;
use std::io;
use std::iter::successors;
use std::net::IpAddr;
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
use tokio::time::timeout;

use crate::args::ServerArgs;
use crate::failure::{Exit, Failure};
use crate::output;

/// Timeout of one lookup. Longer than the server's maximum.
const DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Maximum idle time of a connection. Shorter than a server's idle timeout, so that no request is sent on a connection that
/// the server is closing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// A client for one server and API key. It reuses connections.
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

/// The reason why a lookup has no response.
pub enum NoAnswer {
    /// No connection could be made, so no request was sent.
    Unreachable(Cause),
    /// The connection failed. The lookup may or may not have been executed.
    Broken(Cause),
    /// The timeout expired. The lookup may or may not have been executed.
    Late,
}

/// The cause of a failed connection, with advice.
pub struct Cause {
    what: String,
    advice: Option<&'static str>,
}

impl Client {
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let url = args.url.clone();
        let uri = format!("{}{}", url.trim_end_matches('/'), wire::PATH).parse::<Uri>().unwrap_or_default();
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            let failure = Failure::usage(format!("{url} is no http or https URL"));
            return Err(failure.advise("such as http://127.0.0.1:8080"));
        }
        let is_https = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        if !is_https && !args.plaintext && !is_this_machine(host) {
            let failure = Failure::usage(format!("the key and emails would be sent to {host} unencrypted"));
            return Err(failure.advise("use an https:// URL, or --plaintext if the network can be trusted"));
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", key::read(args)?))
            .map_err(|_| Failure::usage("the API key has characters that no key has"))?;
        authorization.set_sensitive(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(is_https, args.tls_ca.as_deref())?)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .build();
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .build(connector);
        Ok(Self { http, url, uri, authorization })
    }

    /// Sends one lookup, without retries.
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
            if e.is_connect() { NoAnswer::Unreachable(cause(&e)) } else { NoAnswer::Broken(cause(&e)) }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| NoAnswer::Broken(cause(e.as_ref())))?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Converts a missing response to an error.
    pub fn failure(&self, no_answer: NoAnswer) -> Failure {
        let url = &self.url;
        match no_answer {
            NoAnswer::Unreachable(Cause { what, advice }) => {
                let failure = Failure::new(format!("can't reach {url}: {what}")).exit(Exit::Unreachable);
                match advice {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                }
            }
            NoAnswer::Broken(Cause { what, .. }) => {
                Failure::new(format!("the answer of {url} broke off: {what}"))
            }
            NoAnswer::Late => Failure::new(format!("{url} did not answer in {DEADLINE:?}")),
        }
    }
}

/// Returns whether `host` is a loopback address or `localhost`. Other names may resolve to any machine.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the root cause of an error as readable text.
fn cause(error: &(dyn Error + 'static)) -> Cause {
    let chain = || successors(Some(error), |&error| inner(error));
    if let Some(error) = chain().find_map(|error| error.downcast_ref()) {
        let (what, advice) = tls::in_words(error);
        return Cause { what: what.to_owned(), advice };
    }
    let what = chain().last().map_or_else(String::new, ToString::to_string);
    let advice =
        "is a server running there? `enrich serve` starts one; --url names another, with http:// or https://";
    Cause { what: output::printable(&what), advice: Some(advice) }
}

/// Returns the error that `error` wraps. Uses `get_ref` for an `io::Error`, whose `source` skips the wrapped error.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}
