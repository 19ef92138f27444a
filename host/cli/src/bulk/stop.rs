//! The reasons why a run stops before all rows have a result.

use hyper::StatusCode;

use crate::client::{Client, RequestError, refusal};
use crate::failure::Failure;

/// The failure of a lookup that applies to all further lookups.
pub enum StopReason {
    OutOfCredits,
    KeyRefused,
    Unreachable(RequestError),
    /// A response that the service never sends.
    UnexpectedResponse(StatusCode),
}

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
        match reason {
            StopReason::OutOfCredits => {
                let what = "the workspace has no credits left";
                Self::new("insufficient_credits", refusal(StatusCode::PAYMENT_REQUIRED, what, None))
            }
            StopReason::KeyRefused => {
                let what = "the server refused the API key";
                Self::new("unauthorized", refusal(StatusCode::UNAUTHORIZED, what, None))
            }
            StopReason::Unreachable(error) => Self::new("unreachable", client.failure(error)),
            StopReason::UnexpectedResponse(status) => {
                let what = format!("the response with status {status} is not one of this service");
                Self::new("unexpected_response", refusal(status, what, None).advise("check --url"))
            }
        }
    }
}
