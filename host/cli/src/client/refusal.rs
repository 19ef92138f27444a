//! Errors and advice for responses that are not a lookup result.

use hyper::StatusCode;

use crate::failure::{Exit, Failure};

/// Creates the error for a response that is not a lookup result, with the exit code and the advice for its
/// status.
pub fn refusal(status: StatusCode, what: impl Into<String>, retry_after_s: Option<u64>) -> Failure {
    let exit = match status.as_u16() {
        401 | 402 | 429 => Exit::Refused,
        _ => Exit::Failed,
    };
    let failure = Failure::new(what).exit(exit);
    let advice = match status.as_u16() {
        400 => "send one personal email address",
        401 => "create a key with `enrich key create WORKSPACE LABEL`",
        402 => "add credits with `enrich credits grant WORKSPACE N`",
        429 => {
            let pause = retry_after_s.map_or_else(|| "a few seconds".to_owned(), |s| format!("{s} s"));
            return failure.advise(format!("try again in {pause}"));
        }
        500 | 502 | 503 => "try again; if the error persists, search the server's log for the request id",
        _ => return failure,
    };
    failure.advise(advice)
}
