//! `enrich lookup`: sends one lookup to a server.

use enrich_lib::receipt::IdempotencyKey;
use hyper::header::{HeaderValue, RETRY_AFTER};

use crate::args::LookupArgs;
use crate::bulk::RowResult;
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
    match RowResult::parse(&response) {
        Some(result) if !result.is_error() => output::line(&body),
        _ => {
            let status = response.status;
            let body: String = body.chars().take(ERROR_CHARS_MAX).collect();
            let retry_after = response.headers.get(RETRY_AFTER);
            let retry_after_s = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            let id = response.note();
            Err(refusal(status, response.reason(), format!("{status}: {body}{id}"), retry_after_s))
        }
    }
}

fn idempotency_key(key: &str) -> Result<HeaderValue, Failure> {
    let header = IdempotencyKey::parse(key.as_bytes()).and_then(|_| HeaderValue::from_str(key).ok());
    header.ok_or_else(|| {
        Failure::usage("the idempotency key is invalid").advise("use 1 to 255 visible ASCII characters")
    })
}
