//! `enrich lookup`: sends one lookup to a server.

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde_json::{Map, Value};

use crate::args::LookupArgs;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output;

/// Maximum number of characters to print of an error's body, which may be an HTML page.
const ERROR_CHARS_MAX: usize = 500;

pub fn run(args: &LookupArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("can't start: {e}")))?;
    let client = Client::new(&args.server)?;
    let answer = runtime.block_on(client.enrich(&args.email)).map_err(|why| client.failure(why))?;
    let body = output::printable(&String::from_utf8_lossy(&answer.body));
    match answer.status {
        StatusCode::OK | StatusCode::NOT_FOUND if is_result(&answer.body) => output::line(&body),
        status => {
            let body: String = body.chars().take(ERROR_CHARS_MAX).collect();
            let failure = Failure::new(format!("{status}: {body}")).exit(exit(status));
            let retry_after =
                answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Err(match advice(status, retry_after) {
                Some(advice) => failure.advise(advice),
                None => failure,
            })
        }
    }
}

fn is_result(body: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(body).is_ok_and(|body| body.contains_key("lookup_id"))
}

/// Returns the exit code for a response that is not a lookup result.
pub fn exit(status: StatusCode) -> Exit {
    match status.as_u16() {
        401 | 402 | 429 => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// Returns advice for a response that is not a lookup result, depending on its status.
pub fn advice(status: StatusCode, retry_after: Option<u64>) -> Option<String> {
    match status.as_u16() {
        400 => Some("the server takes one personal email".to_owned()),
        401 => Some("`enrich key create WORKSPACE LABEL` makes a new key".to_owned()),
        402 => Some("`enrich credits grant WORKSPACE N` gives the workspace more".to_owned()),
        429 => Some(match retry_after {
            Some(seconds) => format!("try again in {seconds} s"),
            None => "try again in a few seconds".to_owned(),
        }),
        500 | 502 | 503 => Some("try again; the server's log says why".to_owned()),
        _ => None,
    }
}
