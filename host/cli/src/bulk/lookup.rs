//! The lookup of one email: its attempts, the delays between them, and failures that stop the run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use enrich_lib::credit::Shortage;
use enrich_lib::refusal::Refusal;
use enrich_store::Backoff;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::pauses::Pauses;
use super::row_result::{RowResult, temporary};
use super::run_id::RunId;
use super::stop::StopReason;
use crate::client::{Client, RequestError, Response};

/// Maximum number of attempts per lookup.
const ATTEMPTS_MAX: u32 = 5;

/// The delays between the attempts, before jitter.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// The delay before a lookup is repeated whose credits other lookups hold.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// The reason of that refusal.
const CREDITS_HELD: Option<&str> = Refusal::InsufficientCredits(Shortage::Held).reason();

/// Sends lookups. All lookups of a run share it.
pub struct LookupClient {
    pub http: Client,
    pub run_id: RunId,
    pub pauses: Pauses,
    /// The times in which lookups wait for credits that others hold.
    pub held: Pauses,
    /// Whether the run has a result. Before that, a response of another service stops it.
    pub has_result: AtomicBool,
    /// Stops the run when cancelled: requests in flight finish, and no more are sent.
    pub stop: CancellationToken,
}

pub enum LookupOutcome {
    Completed(RowResult),
    /// Failed after all attempts.
    Failed(FailedLookup),
    /// Not sent, or not retried, because the run stops.
    Skipped,
    /// Failed in a way that applies to all further lookups.
    Stop(StopReason),
}

pub struct FailedLookup {
    /// The error's code.
    pub status: &'static str,
    /// The result to report, with this status.
    pub result: RowResult,
}

impl LookupClient {
    /// Looks up an email, with retries after temporary failures, which are paid once.
    pub async fn lookup(&self, email: &str) -> LookupOutcome {
        let key = self.run_id.idempotency_key(email);
        let (mut failures, mut backoff) = (0, BACKOFF);
        loop {
            self.stop.run_until_cancelled(self.pauses.ended()).await;
            if self.stop.is_cancelled() {
                return LookupOutcome::Skipped;
            }
            let failed = match self.http.enrich(email, Some(key.clone())).await {
                Ok(response) => {
                    self.pauses.update(&response);
                    match classify(&response, self.has_result.load(Ordering::Relaxed)) {
                        ResponseClass::Final(outcome @ LookupOutcome::Stop(_)) => {
                            // Before other lookups send a request.
                            self.stop.cancel();
                            return outcome;
                        }
                        ResponseClass::Final(outcome) => {
                            if matches!(&outcome, LookupOutcome::Completed(result) if !result.is_error()) {
                                self.has_result.store(true, Ordering::Relaxed);
                            }
                            return outcome;
                        }
                        ResponseClass::Limited => continue,
                        ResponseClass::CreditsHeld => {
                            self.held.pause(HELD_PAUSE, "other lookups hold the last credits");
                            self.pause(HELD_PAUSE).await;
                            continue;
                        }
                        ResponseClass::Failed(status) => {
                            let mut result = RowResult::error(status, Some(&response));
                            if matches!(status, temporary::NO_ANSWER | temporary::UNEXPECTED_RESPONSE) {
                                result.reason = Some(format!("status {}", response.status.as_u16()));
                            }
                            FailedLookup { status, result }
                        }
                    }
                }
                Err(error @ RequestError::Unreachable(_)) if failures + 1 == ATTEMPTS_MAX => {
                    self.stop.cancel();
                    return LookupOutcome::Stop(StopReason::Unreachable(error));
                }
                Err(_) => {
                    let status = temporary::NO_ANSWER;
                    FailedLookup { status, result: RowResult::error(status, None) }
                }
            };
            failures += 1;
            if failures == ATTEMPTS_MAX {
                return LookupOutcome::Failed(failed);
            }
            self.pause(backoff.next_pause()).await;
        }
    }

    /// Waits for `delay` with a jitter of 50 % in both directions, so that clients that failed together do not
    /// retry together.
    async fn pause(&self, delay: Duration) {
        self.stop.run_until_cancelled(sleep(delay.mul_f64(rand::random_range(0.5..1.5)))).await;
    }
}

enum ResponseClass {
    Final(LookupOutcome),
    /// Failed with this status; retried up to [`ATTEMPTS_MAX`] times in total.
    Failed(&'static str),
    /// Refused without being executed. The [`Pauses`] determine when to retry.
    Limited,
    /// Refused because other lookups hold the last credits, which they may release.
    CreditsHeld,
}

fn classify(response: &Response, has_result: bool) -> ResponseClass {
    let stop = || {
        let (status, code) = (response.status, response.error_code());
        let reason = StopReason::Refused { status, code, note: response.note() };
        ResponseClass::Final(LookupOutcome::Stop(reason))
    };
    match response.status.as_u16() {
        402 if response.reason() == CREDITS_HELD => ResponseClass::CreditsHeld,
        401 | 402 => stop(),
        // A proxy sends these: the request timed out, or came too early.
        408 | 425 => ResponseClass::Failed(temporary::NO_ANSWER),
        429 => ResponseClass::Limited,
        status @ 500..=599 => {
            let refusals = [Refusal::ServerError, Refusal::LookupError, Refusal::RateLimitUnavailable];
            let code = response.error_code();
            let own =
                refusals.iter().find(|own| own.status() == status && code.as_deref() == Some(own.code()));
            // A proxy may have lost the reply to a lookup that was billed.
            ResponseClass::Failed(own.map_or(temporary::NO_ANSWER, Refusal::code))
        }
        _ => match RowResult::parse(response) {
            Some(result) => ResponseClass::Final(LookupOutcome::Completed(result)),
            None if has_result => ResponseClass::Failed(temporary::UNEXPECTED_RESPONSE),
            None => stop(),
        },
    }
}
