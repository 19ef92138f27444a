//! The replies to lookups with a test key.

use std::time::Duration;

use super::{Outcome, Reply};
use crate::credit::Shortage;
use crate::email::{Email, EmailError, Unsupported};
use crate::model::ProfileUrl;
use crate::refusal::Refusal;
use crate::window::RateLimitStatus;

/// The domain of the addresses of [`TEST_REPLIES`].
pub const TEST_DOMAIN: &str = "enrich.test";

/// The profile that a test lookup finds.
const PROFILE: &str = "enrich-test";

/// The reply to a lookup with a test key for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestReply {
    /// The part of the address before `@` and [`TEST_DOMAIN`].
    pub local_part: &'static str,
    /// Whether a profile is found, or the refusal. Its headers are those of any such reply.
    pub result: Result<bool, Refusal>,
    /// How long the server waits.
    pub delay: Duration,
}

/// All replies, by address. For any other address, no match is found.
pub const TEST_REPLIES: &[TestReply] = &[
    reply("found", Ok(true)),
    NOT_FOUND,
    reply("invalid", Err(Refusal::InvalidEmail(EmailError::Domain))),
    reply("unsupported", Err(Refusal::UnsupportedEmail(Unsupported::Role))),
    reply("no-credits", Err(Refusal::InsufficientCredits(Shortage::Exhausted))),
    reply("limited", Err(Refusal::RateLimited)),
    reply("failed", Err(Refusal::ServerError)),
    reply("lookup-failed", Err(Refusal::LookupError)),
    reply("limit-unknown", Err(Refusal::RateLimitUnavailable)),
    TestReply { delay: Duration::from_secs(5), ..reply("slow", Ok(true)) },
];

const NOT_FOUND: TestReply = reply("not-found", Ok(false));

const fn reply(local_part: &'static str, result: Result<bool, Refusal>) -> TestReply {
    TestReply { local_part, result, delay: Duration::ZERO }
}

impl TestReply {
    /// Returns the address.
    pub fn address(&self) -> String {
        format!("{}@{TEST_DOMAIN}", self.local_part)
    }

    /// Returns the HTTP status.
    pub const fn status(&self) -> u16 {
        match &self.result {
            Ok(true) => 200,
            Ok(false) => 404,
            Err(refusal) => refusal.status(),
        }
    }

    /// Returns the reply for an address, in any case.
    pub fn of(email: &Email) -> Self {
        let is_test = email.domain().eq_ignore_ascii_case(TEST_DOMAIN);
        let find = |reply: &Self| is_test && email.local_part().eq_ignore_ascii_case(reply.local_part);
        TEST_REPLIES.iter().copied().find(find).unwrap_or(NOT_FOUND)
    }

    /// Sets the result, the delay and the rate-limit headers of an admitted request's reply. Those of a refusal
    /// by the burst limit are as if the limit had been reached, or the window had not been counted.
    pub(super) fn complete(self, reply: Reply) -> Reply {
        let profile = || ProfileUrl::from_name(PROFILE).map_or(Outcome::NotFound, Outcome::Found);
        let result = self.result.map(|is_found| if is_found { profile() } else { Outcome::NotFound });
        let rate_limit = match self.result {
            Err(Refusal::RateLimitUnavailable) => None,
            Err(Refusal::RateLimited) => {
                reply.rate_limit.map(|status| RateLimitStatus { remaining: 0, ..status })
            }
            _ => reply.rate_limit,
        };
        Reply { rate_limit, result, delay: self.delay, ..reply }
    }
}
