//! A vendor's description, and the outcome of a request to it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use enrich_lib::email::Email;
use enrich_lib::model::LookupId;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::resolver::{Answer, VendorError, VendorErrorKind};
use enrich_vendors::provider::{Client, Description, Provider, SecretSource};
use tracing::level_filters::LevelFilter;

/// Must never appear in errors or logs. The address is neither in canonical form nor in lower case.
pub(crate) const EMAIL: &str = "Ada.Marlowe+news@GMail.com";
pub(crate) const SECRET: &str = "s3cr3t-k3y";
pub(crate) const NAME: &str = "ada-marlowe-7";

pub(crate) fn query() -> Query {
    Query::new(LookupId::from_bytes([7; 16]), "demo".parse().unwrap(), Email::parse(EMAIL).unwrap())
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The name of the profile.
    Found(String),
    NoMatch,
    /// The kind of the error, and the pause before a retry in seconds.
    Failed(VendorErrorKind, Option<u64>),
}

pub(crate) fn found() -> Outcome {
    Outcome::Found(NAME.to_owned())
}

pub(crate) fn failed(kind: VendorErrorKind) -> Outcome {
    Outcome::Failed(kind, None)
}

/// Describes a vendor at `base` that receives the email and the key in all supported places.
pub(crate) fn description(base: &str, deadline_ms: u64) -> Description {
    let text = format!(
        r#"
        name = "acme"
        bills = "matches"
        [request]
        method = "POST"
        url = "{base}/people/{{email_sha256}}?email={{email}}&key={{secret}}"
        headers = {{ Authorization = "Bearer {{secret}}" }}
        body = '{{ "email": "{{email}}" }}'
        [secret]
        env = "ACME_KEY"
        [answer]
        profile = ["/person/linkedin", "/person/links/0"]
        confidence = {{ at = "/score", scale = "0-100", min = 0.8 }}
        [statuses]
        no_match = [404]
        [limits]
        deadline_ms = {deadline_ms}
        "#
    );
    Description::parse(&text).unwrap()
}

/// Creates a resolver whose key is loaded from a file.
pub(crate) fn provider(description: Description, client: Client) -> Provider {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, format!("{SECRET}\n")).unwrap();
    Provider::new(description.with_secret(SecretSource::File(path)).unwrap(), client).unwrap()
}

/// Sends one request, and checks that the error and the log contain no confidential data.
pub(crate) async fn look_up(provider: &Provider) -> Outcome {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    tracing::trace!("looking up {provider:?}");
    let answer = provider.find(&query()).await;
    if let Err(error) = &answer {
        tracing::error!("{error:#}");
        tracing::error!("{error:?}");
    }
    drop(guard);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("looking up"), "the log is not read: {text}");
    for secret in [EMAIL, SECRET, NAME, "ada.marlowe", "ada%2E", "%40gmail", "gmail.com", "linkedin.com/in/"]
    {
        let text = text.to_lowercase();
        assert!(!text.contains(&secret.to_lowercase()), "{secret} is text: {text}");
    }
    match answer {
        Ok(Answer { profile: Some(profile), .. }) => Outcome::Found(profile.name().to_owned()),
        Ok(_) => Outcome::NoMatch,
        Err(error) => {
            let error = VendorError::find_in(&error).unwrap_or_else(|| panic!("no error in {error:?}"));
            Outcome::Failed(error.kind, error.retry_after.map(|wait| wait.as_secs()))
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
