//! Errors and advice for responses that are not a lookup result.

use hyper::StatusCode;

use crate::failure::{Exit, Failure};

/// Creates the error for a response that is not a lookup result, with the exit code and the advice for its
/// status and its reason.
pub fn refusal(
    status: StatusCode,
    reason: Option<&str>,
    what: impl Into<String>,
    retry_after_s: Option<u64>,
) -> Failure {
    let exit = match status.as_u16() {
        401 | 402 | 429 => Exit::Refused,
        _ => Exit::Failed,
    };
    let failure = Failure::new(what).exit(exit);
    let advice = match (status.as_u16(), reason) {
        (400, Some("idempotency-key")) => "use another --idempotency-key",
        (400, _) => "send one personal email address",
        (401, _) => "create a key with `enrich key create WORKSPACE LABEL`",
        (402, Some("credits-held")) => "try again when the lookups in progress have ended, or add credits",
        (402, _) => "add credits with `enrich credits grant WORKSPACE N`",
        (429, _) => {
            let pause = retry_after_s.map_or_else(|| "a few seconds".to_owned(), |s| format!("{s} s"));
            return failure.advise(format!("try again in {pause}"));
        }
        (500 | 502 | 503, _) => {
            "try again; if the error persists, search the server's log for the request id"
        }
        _ => return failure,
    };
    failure.advise(advice)
}
