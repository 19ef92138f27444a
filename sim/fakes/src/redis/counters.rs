//! A Rust model of the Redis adapter's script.

use std::collections::BTreeMap;

/// Counters with their expiry. Times are in milliseconds since the Unix epoch, by the server's clock.
#[derive(Clone, Debug, Default)]
pub struct Counters(BTreeMap<Vec<u8>, Counter>);

#[derive(Clone, Copy, Debug)]
struct Counter {
    count: i64,
    expires_at: i64,
}

/// The counts that the counter accepts, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The earliest count.
    pub counts_from: i64,
    /// When the counter expires.
    pub expires_at: i64,
}

/// The reason why the script rejects a count, in milliseconds of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The server's clock is past the counter's expiry, so the counter would expire at once.
    Late(i64),
    /// The server's clock is before the earliest count.
    Early(i64),
}

impl Counters {
    /// Adds `requests` to the counter and returns the new count.
    pub fn count(
        &mut self,
        key: &[u8],
        requests: i64,
        Validity { counts_from, expires_at }: Validity,
        now: i64,
    ) -> Result<i64, Rejection> {
        self.0.retain(|_, counter| counter.expires_at > now);
        if now >= expires_at {
            return Err(Rejection::Late(now - expires_at));
        }
        if now < counts_from {
            return Err(Rejection::Early(counts_from - now));
        }
        let counter = self.0.entry(key.to_vec()).or_insert(Counter { count: 0, expires_at });
        counter.count += requests;
        Ok(counter.count)
    }
}
