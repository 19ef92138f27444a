//! Attempts to reach one of several servers or addresses.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

/// The time after which the next address of a host is tried as well.
pub const ADDRESS_HEAD_START: Duration = Duration::from_millis(200);

/// Returns the first success of `attempt`, or `None` without candidates. Starts the next attempt when one fails, or
/// after `head_start`, so that a candidate that does not respond delays the others by no more.
///
/// If all attempts fail, returns the last error that shows a response, or else the last one.
pub async fn first<C, T, E, F>(
    head_start: Duration,
    candidates: impl IntoIterator<Item = C>,
    attempt: impl Fn(C) -> F,
    shows_response: impl Fn(&E) -> bool,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut candidates = candidates.into_iter().peekable();
    let (mut attempts, mut failure) = (FuturesUnordered::new(), None);
    loop {
        match candidates.next() {
            Some(candidate) => attempts.push(attempt(candidate)),
            None if attempts.is_empty() => return failure.map(Err),
            None => {}
        }
        let finished = match candidates.peek() {
            Some(_) => timeout(head_start, attempts.next()).await.ok().flatten(),
            None => attempts.next().await,
        };
        match finished {
            Some(Ok(reached)) => return Some(Ok(reached)),
            Some(Err(error)) if shows_response(&error) || !failure.as_ref().is_some_and(&shows_response) => {
                failure = Some(error);
            }
            Some(Err(_)) | None => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    /// The addresses: one that does not respond, one that refuses, and one that accepts.
    #[tokio::test(start_paused = true)]
    async fn address_without_response_delays_the_next_one_by_the_head_start() {
        let attempt = |address: &'static str| async move {
            match address {
                "silent" => pending().await,
                "refuses" => Err(address),
                _ => Ok(address),
            }
        };
        let started = Instant::now();
        let reached = first(ADDRESS_HEAD_START, ["refuses", "silent", "accepts"], attempt, |_| false).await;
        assert_eq!((reached, started.elapsed()), (Some(Ok("accepts")), ADDRESS_HEAD_START));
        assert_eq!(first(ADDRESS_HEAD_START, ["refuses"], attempt, |_| false).await, Some(Err("refuses")));
        assert_eq!(first(ADDRESS_HEAD_START, [], attempt, |_| false).await, None);
        let attempt = |address: &'static str| async move { Err::<(), _>(address) };
        for (addresses, error) in [(["responds", "refuses"], "responds"), (["refuses", "last"], "last")] {
            let reached = first(ADDRESS_HEAD_START, addresses, attempt, |error| *error == "responds").await;
            assert_eq!(reached, Some(Err(error)));
        }
    }
}
