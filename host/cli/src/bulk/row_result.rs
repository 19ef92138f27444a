//! The vocabulary of a run: the result of a row, and the key of an email.

use crate::files::BadRow;
use enrich_lib::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::client::Response;
use crate::output::is_printable;

/// The result of a row: the values of the columns that `bulk` adds.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RowResult {
    pub linkedin_url: Option<String>,
    /// `found`, `not_found`, or an error's code.
    pub status: String,
    /// The id of the lookup, or of the failed request, in the server's log.
    pub lookup_id: Option<String>,
    /// The reason of an error, if the server gives one.
    pub reason: Option<String>,
}

/// Statuses of lookups that failed after several attempts and may succeed later.
pub mod temporary {
    use enrich_lib::refusal::Refusal;

    pub const SERVER_ERROR: &str = Refusal::ServerError.code();
    pub const LOOKUP_ERROR: &str = Refusal::LookupError.code();
    pub const RATE_LIMIT_UNAVAILABLE: &str = Refusal::RateLimitUnavailable.code();
    /// Set by the client: the connection failed, the request timed out, or a proxy replied with a 408, 425 or 5xx. A match
    /// may have been billed.
    pub const NO_ANSWER: &str = "no_answer";
    /// Set by the client: the service never sends such a response, but for example a proxy does.
    pub const UNEXPECTED_RESPONSE: &str = "unexpected_response";

    pub fn includes(status: &str) -> bool {
        [SERVER_ERROR, LOOKUP_ERROR, RATE_LIMIT_UNAVAILABLE, NO_ANSWER, UNEXPECTED_RESPONSE].contains(&status)
    }
}

impl RowResult {
    /// Creates the result of a row whose lookup failed with `code`, of the response if there is one.
    pub fn error(code: &str, response: Option<&Response>) -> Self {
        let text = |get: fn(&Response) -> Option<&str>| {
            response.and_then(get).filter(|text| is_plain(text)).map(str::to_owned)
        };
        let (lookup_id, reason) = (text(Response::request_id), text(Response::reason));
        Self { linkedin_url: None, status: code.to_owned(), lookup_id, reason }
    }

    /// Creates the result of a row that cannot be looked up.
    pub fn bad_row(row: &BadRow) -> Self {
        Self::error(row.code, None)
    }

    /// Parses a response as a final result (specification 2.2 and 2.3, and status 400 in 7). Returns `None`
    /// for any other response.
    pub fn parse(response: &Response) -> Option<Self> {
        #[derive(Deserialize)]
        struct Body {
            lookup_id: Option<String>,
            status: Option<String>,
            profile: Option<Profile>,
            error: Option<String>,
        }
        #[derive(Deserialize)]
        struct Profile {
            linkedin_url: String,
        }

        let body: Body = serde_json::from_slice(&response.body).ok()?;
        let result = |linkedin_url, status: &str| {
            let lookup_id = body.lookup_id.clone().filter(|id| is_plain(id))?;
            let status = status.to_owned();
            Some(Self { linkedin_url, status, lookup_id: Some(lookup_id), reason: None })
        };
        match (response.status.as_u16(), body.status.as_deref(), body.error.as_deref()) {
            (200, Some("found"), _) => {
                let url = body.profile?.linkedin_url;
                let is_url = is_plain(&url) && (url.starts_with("https://") || url.starts_with("http://"));
                is_url.then(|| result(Some(url), "found"))?
            }
            (404, Some("not_found"), _) => result(None, "not_found"),
            (400, _, Some(code)) if is_refusal(400, code) => Some(Self::error(code, Some(response))),
            _ => None,
        }
    }

    pub fn is_found(&self) -> bool {
        self.status == "found"
    }

    pub fn is_error(&self) -> bool {
        !matches!(self.status.as_str(), "found" | "not_found")
    }
}

/// Returns whether the specification has this status with this code.
fn is_refusal(status: u16, code: &str) -> bool {
    Refusal::ALL.iter().any(|refusal| (refusal.status(), refusal.code()) == (status, code))
}

/// Returns whether a text from the server is safe to write to a file: no formula that a spreadsheet would
/// run, and no line breaks or other control characters.
fn is_plain(text: &str) -> bool {
    const BYTES_MAX: usize = 2048;
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.len() <= BYTES_MAX
        && text.chars().all(is_printable)
}

/// Returns the email in lower case. Emails that differ only in case are looked up once. As on the server, this is the
/// case of ASCII letters.
pub fn email_key(email: &str) -> String {
    email.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, StatusCode};

    fn parse(status: u16, body: &str) -> Option<RowResult> {
        let status = StatusCode::from_u16(status).unwrap();
        RowResult::parse(&Response { status, headers: HeaderMap::new(), body: body.to_owned().into() })
    }

    const FOUND: &str = r#"{"lookup_id":"lookup_1","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/a,b"}}"#;

    #[test]
    fn only_emails_that_differ_in_ascii_case_have_one_key() {
        assert_eq!(email_key("Kay@Gmail.com"), email_key("kay@gmail.com"));
        assert_ne!(email_key("\u{212a}ay@gmail.com"), email_key("kay@gmail.com"), "KELVIN SIGN");
    }

    #[test]
    fn rejects_responses_of_other_services_and_unsafe_values() {
        for (status, body) in [
            (200, "<html>"),
            (200, r#"{"lookup_id":"1","status":"found"}"#),
            (200, &FOUND.replace("https:", "=https:")),
            (200, &FOUND.replace("lookup_1", "=cmd()")),
            (404, r#"{"error":"invalid_request"}"#),
            (400, r#"{"error":"ada@gmail.com"}"#),
            (403, FOUND),
        ] {
            assert_eq!(parse(status, body), None, "{status} {body}");
        }
    }
}
