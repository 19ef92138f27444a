//! How to call the API, with examples.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use enrich_lib::wire;

use crate::console::Console;
use crate::session::Member;
use crate::view::{Shell, page};

#[derive(Template)]
#[template(path = "quick_start.html")]
struct QuickStartPage {
    shell: Shell,
    keys: String,
    url: String,
    errors: &'static [(u16, &'static str, &'static str)],
}

/// Status, code and remedy of each error (specification 7).
const ERRORS: &[(u16, &str, &str)] = &[
    (400, "invalid_request", "Send a JSON object with the single field `email`."),
    (400, "invalid_email", "Send a well-formed email address."),
    (
        400,
        "unsupported_email",
        "Send a personal address; role addresses and disposable domains are not supported.",
    ),
    (401, "unauthorized", "Send an active key as `Authorization: Bearer KEY`."),
    (402, "insufficient_credits", "Ask for more credits; repeat the request afterwards."),
    (429, "rate_limited", "Wait for the seconds in `Retry-After`."),
    (500, "server_error", "Repeat the request; it was not billed."),
    (502, "lookup_error", "Repeat the request; it was not billed."),
    (
        503,
        "rate_limit_unavailable",
        "Repeat the request after the seconds in `Retry-After`; it was not executed.",
    ),
];

pub(crate) async fn show(State(console): State<Arc<Console>>, member: Member) -> Response {
    let url = format!("{}{}", console.config.api_url, wire::PATH);
    let shell = Shell::of_workspace(&member, "quick-start", None);
    page(&QuickStartPage { shell, keys: member.path("keys"), url, errors: ERRORS })
}

#[cfg(test)]
mod tests {
    use enrich_lib::body::BodyError;
    use enrich_lib::email::{EmailError, Unsupported};
    use enrich_lib::refusal::Refusal;

    use super::*;

    #[test]
    fn lists_every_error_of_the_api() {
        let refusals = [
            Refusal::InvalidRequest(BodyError::CutOff),
            Refusal::InvalidEmail(EmailError::Missing),
            Refusal::UnsupportedEmail(Unsupported::Internationalised),
            Refusal::Unauthorized,
            Refusal::InsufficientCredits,
            Refusal::RateLimited,
            Refusal::ServerError,
            Refusal::LookupError,
            Refusal::RateLimitUnavailable,
        ];
        let listed: Vec<_> = ERRORS.iter().map(|(status, code, _)| (*status, *code)).collect();
        assert_eq!(listed, refusals.map(|refusal| (refusal.status(), refusal.code())));
    }
}
