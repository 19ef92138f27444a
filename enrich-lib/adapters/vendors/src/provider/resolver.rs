//! The resolver. One lookup is one HTTP exchange with the vendor.

use async_trait::async_trait;
use bytes::Bytes;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::time::{Duration, Instant, timeout_at};

use super::client::{self, Client};
use super::description::Description;
use super::error::RequestError;
use super::secret::{Secret, SecretError};
use super::status::Meaning;
use super::template::Values;
use super::trace::Tracer;

/// A resolver that finds people at one vendor, with one HTTP exchange per lookup.
///
/// The vendor receives the email as the client sent it, in lower case, and not in its canonical form. Vendors
/// index people by the addresses that they use, and few people use their Gmail address without its dots.
/// `{email_sha256}` is the SHA-256 of the same text.
///
/// Errors have a [`VendorError`](enrich_lib::resolver::VendorError) in their chain, and contain no email, key
/// or profile.
#[derive(derive_more::Debug)]
#[debug("Provider {{ description: {description:?}, .. }}")]
pub struct Provider {
    description: Description,
    secret: Secret,
    headers: HeaderMap,
    client: Client,
    tracer: Tracer,
}

/// Why a [`Provider`] cannot be created from a description.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The key cannot be loaded.
    #[error("{vendor}: {error}")]
    Secret {
        /// The vendor's name.
        vendor: String,
        /// The reason.
        #[source]
        error: SecretError,
    },
    /// The key cannot be part of a header.
    #[error("{vendor}: the API key is not valid in the header {header}")]
    Header {
        /// The vendor's name.
        vendor: String,
        /// The header's name.
        header: String,
    },
}

/// The result of [`Provider::try_email`].
#[derive(derive_more::Debug)]
#[debug("Trial {{ status: {status:?}, .. }}")]
#[non_exhaustive]
pub struct Trial {
    /// The request as text, with `SECRET` in place of the key: request line, headers, an empty line and the
    /// body. It contains the email.
    pub request: String,
    /// The status of the vendor's response, if there was one.
    pub status: Option<u16>,
    /// The trusted match, `None` if there is none, or the error.
    pub found: Result<Option<ProfileUrl>, PortError>,
}

/// The result of one exchange.
struct Exchange {
    status: Option<StatusCode>,
    found: Result<Option<ProfileUrl>, RequestError>,
}

/// The placeholder for the key in displayed requests.
const MASK: &str = "SECRET";

/// How long to wait for the rest of a response whose status already decides the result, so that the
/// connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

impl Provider {
    /// Creates a resolver for the vendor. Loads its key.
    pub fn new(description: Description, client: Client) -> Result<Self, ProviderError> {
        let vendor = || description.name().to_owned();
        let secret = description.secret.as_ref().map(|source| source.load()).transpose();
        let secret =
            secret.map_err(|error| ProviderError::Secret { vendor: vendor(), error })?.unwrap_or_default();
        let headers = description.request.headers(secret.reveal());
        let headers = headers
            .map_err(|header| ProviderError::Header { vendor: vendor(), header: header.to_string() })?;
        Ok(Self { description, secret, headers, client, tracer: Tracer::default() })
    }

    /// Returns whether both send the same requests, with the same key.
    pub fn is_same(&self, other: &Self) -> bool {
        self.description == other.description && self.secret == other.secret
    }

    /// Returns the description of the vendor.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Sends one request outside of any lookup, for an operator who tests a vendor. The vendor may bill it.
    pub async fn try_email(&self, email: &Email) -> Trial {
        let request = self.with_values(email, MASK, |values| {
            let headers = self.description.request.headers(MASK).unwrap_or_default();
            self.description.request.fill(values, &headers)
        });
        let Exchange { status, found } = self.exchange(email, HeaderMap::new()).await;
        Trial {
            request: request.map_or_else(|_| String::new(), to_text),
            status: status.map(|status| status.as_u16()),
            found: found.map_err(PortError::from),
        }
    }

    async fn exchange(&self, email: &Email, trace: HeaderMap) -> Exchange {
        let deadline = Instant::now() + self.description.deadline();
        let response = timeout_at(deadline, self.send(email, trace)).await;
        match response.unwrap_or_else(|_| Err(self.timed_out())) {
            Ok(response) => {
                Exchange { status: Some(response.status()), found: self.interpret(response, deadline).await }
            }
            Err(error) => Exchange { status: None, found: Err(error) },
        }
    }

    async fn interpret(
        &self,
        response: Response<Incoming>,
        deadline: Instant,
    ) -> Result<Option<ProfileUrl>, RequestError> {
        let status = response.status();
        match self.description.statuses.meaning(status) {
            Meaning::Answer => {
                timeout_at(deadline, self.read(response)).await.unwrap_or_else(|_| Err(self.timed_out()))
            }
            Meaning::NoMatch => {
                drain(response, deadline).await;
                Ok(None)
            }
            Meaning::Error(kind) => {
                let retry_after = client::retry_after(response.headers());
                drain(response, deadline).await;
                Err(RequestError::new(kind, format!("status {}", status.as_u16()))
                    .with_retry_after(retry_after))
            }
        }
    }

    fn timed_out(&self) -> RequestError {
        let waited = self.description.deadline();
        RequestError::new(VendorErrorKind::TimedOut, format!("no complete response within {waited:?}"))
    }

    fn with_values<T>(&self, email: &Email, secret: &str, fill: impl FnOnce(&Values<'_>) -> T) -> T {
        let email = email.to_lower_case();
        let email_sha256 = hex::encode(Sha256::digest(email.as_bytes()));
        fill(&Values { email: &email, email_sha256: &email_sha256, secret })
    }

    async fn send(&self, email: &Email, trace: HeaderMap) -> Result<Response<Incoming>, RequestError> {
        let request = self.with_values(email, self.secret.reveal(), |values| {
            self.description.request.fill(values, &self.headers)
        });
        let mut request = request
            .map_err(|_| RequestError::new(VendorErrorKind::RequestRejected, "cannot build the request"))?;
        request.headers_mut().extend(trace);
        self.client.send(request.map(Full::new)).await.map_err(|error| {
            // If the connection breaks after the request was sent, the vendor may have billed it. Not safe to
            // repeat.
            let kind = match error.is_connect() {
                true if client::is_out_of_file_descriptors(&error) => VendorErrorKind::TooManyOpenFiles,
                true => VendorErrorKind::Unavailable,
                false if client::is_unprocessed(&error) => VendorErrorKind::Unavailable,
                false => VendorErrorKind::InvalidResponse,
            };
            RequestError::new(kind, client::reason(&error))
        })
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Option<ProfileUrl>, RequestError> {
        let body = client::read(response.into_body()).await;
        let body: Bytes = body.map_err(|error| RequestError::new(error.kind(), error))?;
        self.description.answer.read(&body).map_err(|error| RequestError::new(error.kind(), error))
    }
}

/// Formats the request line, the headers and the body of a request.
fn to_text(request: Request<Bytes>) -> String {
    let head = format!("{} {}\n", request.method(), request.uri());
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    let text = head + &headers.collect::<String>();
    let body = request.body();
    if body.is_empty() { text } else { format!("{text}\n{}\n", String::from_utf8_lossy(body)) }
}

/// Reads the rest of a response so that its connection can be reused. Errors are ignored.
async fn drain(response: Response<Incoming>, deadline: Instant) {
    let rest = deadline.min(Instant::now() + DRAIN_TIMEOUT);
    drop(timeout_at(rest, client::read(response.into_body())).await);
}

#[async_trait]
impl Resolver for Provider {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let trace = self.tracer.headers(self.description.name(), query);
        Ok(self.exchange(&query.email, trace).await.found?.into())
    }
}
