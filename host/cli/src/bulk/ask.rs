//! The lookup of one email: its attempts, the delays between them, and failures that stop the run.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, temporary};
use super::pace::Pace;
use crate::client::{Answer as Reply, Client, NoAnswer};

/// Maximum number of attempts per lookup.
const ATTEMPTS_MAX: u32 = 5;

/// Delay before the second attempt. Doubles with each further attempt.
const BACKOFF: Duration = Duration::from_millis(500);

/// The client and state that all lookups share.
pub struct Asker {
    pub client: Client,
    pub pace: Pace,
    /// Stops the run when cancelled: requests in flight finish, and no more are sent.
    pub stop: CancellationToken,
}

pub enum Asked {
    Answered(Answer),
    /// Failed after all attempts. Contains the status to report.
    Failed(&'static str),
    /// Stopped before a request was sent, or before it was retried.
    Unasked,
    /// Failed in a way that applies to all further lookups.
    Halted(Halt),
}

pub enum Halt {
    OutOfCredits,
    KeyRefused,
    Unreachable(NoAnswer),
    NotUnderstood(StatusCode),
}

impl Asker {
    pub async fn ask(&self, email: &str) -> Asked {
        let mut attempts = 0;
        loop {
            let turn = self.stop.run_until_cancelled(self.pace.turn()).await;
            // The turn may become available at the same time as the stop.
            let Some(turn) = turn.filter(|_| !self.stop.is_cancelled()) else { return Asked::Unasked };
            attempts += 1;
            let failed = match self.client.enrich(email).await {
                Ok(reply) => {
                    let verdict = match judge(&reply) {
                        Verdict::Final(Asked::Halted(Halt::OutOfCredits)) if !turn.is_out_of_credits() => {
                            Verdict::Refused
                        }
                        verdict => verdict,
                    };
                    if let Verdict::Final(Asked::Halted(_)) = verdict {
                        // Stops the run before other lookups start their turns.
                        self.stop.cancel();
                    }
                    turn.answered(&reply);
                    match verdict {
                        Verdict::Final(asked) => return asked,
                        Verdict::Failed(code) => code,
                        Verdict::Refused => {
                            attempts -= 1;
                            continue;
                        }
                    }
                }
                Err(why @ NoAnswer::Unreachable(_)) if attempts == ATTEMPTS_MAX => {
                    self.stop.cancel();
                    return Asked::Halted(Halt::Unreachable(why));
                }
                Err(_) => {
                    drop(turn);
                    temporary::NO_ANSWER
                }
            };
            if attempts == ATTEMPTS_MAX {
                return Asked::Failed(failed);
            }
            self.stop.run_until_cancelled(sleep(backoff(attempts))).await;
        }
    }
}

enum Verdict {
    Final(Asked),
    /// Failed; retried up to [`ATTEMPTS_MAX`] times in total.
    Failed(&'static str),
    /// Not executed. The [`Pace`] determines when to retry.
    Refused,
}

fn judge(reply: &Reply) -> Verdict {
    match reply.status.as_u16() {
        401 => Verdict::Final(Asked::Halted(Halt::KeyRefused)),
        402 => Verdict::Final(Asked::Halted(Halt::OutOfCredits)),
        429 => Verdict::Refused,
        502 => Verdict::Failed(temporary::LOOKUP_ERROR),
        503 => Verdict::Failed(temporary::RATE_LIMIT_UNAVAILABLE),
        500..=599 => Verdict::Failed(temporary::SERVER_ERROR),
        _ => {
            let answer = Answer::read(reply).map(Asked::Answered);
            Verdict::Final(answer.unwrap_or(Asked::Halted(Halt::NotUnderstood(reply.status))))
        }
    }
}

/// Returns the delay after `attempts` attempts, with a jitter of 50 % in both directions, so that clients that failed
/// together do not retry together.
fn backoff(attempts: u32) -> Duration {
    (BACKOFF * 2_u32.pow(attempts - 1)).mul_f64(rand::random_range(0.5..1.5))
}
