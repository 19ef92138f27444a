//! `enrich lookup`: sends one lookup to a server.

use enrich_lib::receipt::IdempotencyKey;
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Map, Value};

use crate::args::LookupArgs;
use crate::client::{Client, refusal};
use crate::failure::Failure;
use crate::output;
use crate::runtime;

/// Maximum number of characters to print of an error's body, which may be an HTML page.
const ERROR_CHARS_MAX: usize = 500;

pub fn run(args: &LookupArgs) -> Result<(), Failure> {
    let runtime = runtime::single_threaded()?;
    let client = Client::new(&args.server, 1)?;
    let key = args.idempotency_key.as_deref().map(idempotency_key).transpose()?;
    let response =
        runtime.block_on(client.enrich(&args.email, key)).map_err(|error| client.failure(error))?;
    let body = output::printable(&String::from_utf8_lossy(&response.body));
    match response.status {
        StatusCode::OK | StatusCode::NOT_FOUND if is_result(&response.body) => output::line(&body),
        status => {
            let body: String = body.chars().take(ERROR_CHARS_MAX).collect();
            let retry_after = response.headers.get(RETRY_AFTER);
            let retry_after_s = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            let id = response.note();
            Err(refusal(status, format!("{status}: {body}{id}"), retry_after_s))
        }
    }
}

fn idempotency_key(key: &str) -> Result<HeaderValue, Failure> {
    let header = IdempotencyKey::parse(key.as_bytes()).and_then(|_| HeaderValue::from_str(key).ok());
    header.ok_or_else(|| {
        Failure::usage("the idempotency key is invalid").advise("use 1 to 255 visible ASCII characters")
    })
}

/// Returns whether the body is a lookup result, with or without a match.
fn is_result(body: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(body).is_ok_and(|body| body.contains_key("lookup_id"))
}
