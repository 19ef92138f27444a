//! The reasons why a run stops before all rows have a result.

use enrich_lib::credit::Shortage;
use enrich_lib::refusal::Refusal;
use hyper::StatusCode;

use super::row_result::temporary::UNEXPECTED_RESPONSE;
use crate::client::{Client, RequestError, refusal};
use crate::failure::Failure;

/// The failure of a lookup that applies to all further lookups.
pub enum StopReason {
    Unreachable(RequestError),
    /// The key is refused, no credits are left, or a response before the first result is not one of this service. With the error's
    /// code, and the note of the reason and the request id.
    Refused {
        status: StatusCode,
        code: Option<String>,
        note: String,
    },
}

/// The error's code of a response to a workspace without credits.
const INSUFFICIENT_CREDITS: &str = Refusal::InsufficientCredits(Shortage::Exhausted).code();

/// A run that stopped early.
pub struct Stopped {
    /// The reason in JSON output.
    pub code: &'static str,
    /// The error to print.
    pub error: Failure,
}

impl Stopped {
    pub fn new(code: &'static str, error: Failure) -> Self {
        Self { code, error }
    }

    pub fn because(reason: StopReason, client: &Client) -> Self {
        let (status, code, note) = match reason {
            StopReason::Unreachable(error) => return Self::new("unreachable", client.failure(error)),
            StopReason::Refused { status, code, note } => (status, code, note),
        };
        let refused = |what: &str| refusal(status, None, format!("{what}{note}"), None);
        match code.as_deref() {
            Some(INSUFFICIENT_CREDITS) => {
                Self::new(INSUFFICIENT_CREDITS, refused("the workspace has no credits left"))
            }
            _ if status == StatusCode::UNAUTHORIZED => {
                Self::new(Refusal::Unauthorized.code(), refused("the server refused the API key"))
            }
            _ => {
                let what = format!("the response with status {status} is not one of this service");
                Self::new(UNEXPECTED_RESPONSE, refused(&what).advise("check --url"))
            }
        }
    }
}
