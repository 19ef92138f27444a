//! The lookup of one email: its attempts, the delays between them, and failures that stop the run.

use std::time::Duration;

use enrich_store::Backoff;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::rate_limit::RateLimiter;
use super::row_result::{RowResult, temporary};
use super::run_id::RunId;
use super::stop::{INSUFFICIENT_CREDITS, StopReason};
use crate::client::{Client, RequestError, Response};

/// Maximum number of attempts per lookup.
const ATTEMPTS_MAX: u32 = 5;

/// The delays between the attempts, before jitter.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// Sends lookups. All lookups of a run share it.
pub struct LookupClient {
    pub http: Client,
    pub run_id: RunId,
    pub limiter: RateLimiter,
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
        let (mut attempts, mut backoff) = (0, BACKOFF);
        loop {
            let permit = self.stop.run_until_cancelled(self.limiter.acquire()).await;
            // The permit may become available at the same time as the stop.
            let Some(permit) = permit.filter(|_| !self.stop.is_cancelled()) else {
                return LookupOutcome::Skipped;
            };
            attempts += 1;
            let failed = match self.http.enrich(email, Some(key.clone())).await {
                Ok(response) => {
                    let class = match classify(&response) {
                        ResponseClass::Final(LookupOutcome::Stop(_))
                            if response.error_code().as_deref() == Some(INSUFFICIENT_CREDITS)
                                && !permit.credits_refused() =>
                        {
                            ResponseClass::NotExecuted
                        }
                        class => class,
                    };
                    if let ResponseClass::Final(LookupOutcome::Stop(_)) = class {
                        // Stops the run before other lookups acquire a permit.
                        self.stop.cancel();
                    }
                    permit.complete(&response);
                    match class {
                        ResponseClass::Final(outcome) => return outcome,
                        ResponseClass::Failed(status) => {
                            FailedLookup { status, result: RowResult::error(status, Some(&response)) }
                        }
                        ResponseClass::NotExecuted => {
                            attempts -= 1;
                            continue;
                        }
                    }
                }
                Err(error @ RequestError::Unreachable(_)) if attempts == ATTEMPTS_MAX => {
                    self.stop.cancel();
                    return LookupOutcome::Stop(StopReason::Unreachable(error));
                }
                Err(_) => {
                    drop(permit);
                    let status = temporary::NO_ANSWER;
                    FailedLookup { status, result: RowResult::error(status, None) }
                }
            };
            if attempts == ATTEMPTS_MAX {
                return LookupOutcome::Failed(failed);
            }
            self.stop.run_until_cancelled(sleep(jittered(backoff.next_pause()))).await;
        }
    }
}

enum ResponseClass {
    Final(LookupOutcome),
    /// Failed with this status; retried up to [`ATTEMPTS_MAX`] times in total.
    Failed(&'static str),
    /// Refused without being executed. The [`RateLimiter`] determines when to retry.
    NotExecuted,
}

fn classify(response: &Response) -> ResponseClass {
    let stop = || {
        let (status, code) = (response.status, response.error_code());
        let reason = StopReason::Refused { status, code, note: response.note() };
        ResponseClass::Final(LookupOutcome::Stop(reason))
    };
    match response.status.as_u16() {
        401 => stop(),
        429 => ResponseClass::NotExecuted,
        502 => ResponseClass::Failed(temporary::LOOKUP_ERROR),
        503 => ResponseClass::Failed(temporary::RATE_LIMIT_UNAVAILABLE),
        500..=599 => ResponseClass::Failed(temporary::SERVER_ERROR),
        _ => match RowResult::parse(response) {
            Some(result) => ResponseClass::Final(LookupOutcome::Completed(result)),
            None => stop(),
        },
    }
}

/// Adds a jitter of 50 % in both directions, so that clients that failed together do not retry together.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(rand::random_range(0.5..1.5))
}
