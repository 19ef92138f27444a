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

/// The server's clock is past the counter's expiry by this many milliseconds, so the counter would expire at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired(pub i64);

impl Counters {
    /// Adds `requests` to the counter and returns the new count.
    pub fn count(&mut self, key: &[u8], requests: i64, expires_at: i64, now: i64) -> Result<i64, Expired> {
        self.0.retain(|_, counter| counter.expires_at > now);
        if now >= expires_at {
            return Err(Expired(now - expires_at));
        }
        let counter = self.0.entry(key.to_vec()).or_insert(Counter { count: 0, expires_at });
        counter.count += requests;
        Ok(counter.count)
    }
}
