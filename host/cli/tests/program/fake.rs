//! A fake server with configurable replies.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

pub use crate::enrich::http::Reply;
use crate::enrich::{header, http};

pub struct FakeServer {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

struct Request {
    received_at: Instant,
    email: String,
    authorization: String,
    idempotency_key: Option<String>,
}

impl FakeServer {
    /// Starts a server. `reply` receives the email and the number of earlier requests for it, in any case.
    pub fn start(reply: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
        let all = requests.clone();
        let address = http::start(move |head, body| {
            let body: Value = serde_json::from_slice(body).unwrap();
            let email = body["email"].as_str().unwrap();
            let value = |name| header(head, name).map(str::to_owned);
            let before = {
                let mut all = all.lock().unwrap();
                let before = all.iter().filter(|other| other.email.eq_ignore_ascii_case(email)).count();
                all.push(Request {
                    received_at: Instant::now(),
                    email: email.to_owned(),
                    authorization: value("authorization").unwrap(),
                    idempotency_key: value("idempotency-key"),
                });
                before
            };
            reply(email, before)
        });
        Self { url: format!("http://{address}"), requests }
    }

    /// Returns the emails of all requests, in order.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.email.clone()).collect()
    }

    pub fn request_times(&self) -> Vec<Instant> {
        self.requests.lock().unwrap().iter().map(|request| request.received_at).collect()
    }

    /// Returns the credentials of all requests, in order.
    pub fn authorizations(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.authorization.clone()).collect()
    }

    pub fn idempotency_keys(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().iter().flat_map(|request| request.idempotency_key.clone()).collect()
    }
}

/// Replies that the person is found.
pub fn found(email: &str) -> Reply {
    let name = email.split('@').next().unwrap().to_lowercase();
    let body = format!(
        r#"{{"lookup_id":"id-{name}","status":"found","profile":{{"linkedin_url":"https://www.linkedin.com/in/{name}"}}}}"#
    );
    Some((200, String::new(), body))
}

pub fn error(status: u16, code: &str, headers: &str) -> Reply {
    Some((status, headers.to_owned(), format!(r#"{{"error":"{code}"}}"#)))
}
