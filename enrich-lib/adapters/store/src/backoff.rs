//! Exponential backoff.

use std::time::Duration;

/// The pauses between attempts. Each pause is twice the previous one, up to a maximum.
///
/// ```
/// # use std::time::Duration;
/// # use enrich_store::Backoff;
/// let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(50));
/// assert_eq!([(); 3].map(|()| backoff.next_pause().as_millis()), [20, 40, 50]);
/// backoff.reset();
/// assert_eq!(backoff.next_pause().as_millis(), 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff that starts with the pause `first`. No pause exceeds `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// Returns the next pause, and doubles the one after it.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2);
        pause
    }

    /// Returns the next pause with full jitter: the part `random`, from 0 to 1, of [`Backoff::next_pause`].
    /// Jitter keeps several nodes from retrying simultaneously.
    pub fn next_pause_with_jitter(&mut self, random: f64) -> Duration {
        self.next_pause().mul_f64(random)
    }

    /// Starts again with the first pause, after an attempt has succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}
