//! The counters in Redis: keys, expiry and invalid values.

use std::time::Duration;

use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Window};
use enrich_redis::WindowStoreError;

use super::{count, key, now, start};

/// Returns the window of the second that contains a time.
fn second_at(time: Timestamp) -> Window {
    Quota::new(5, 1).unwrap().window(&"demo".parse().unwrap(), time)
}

#[tokio::test]
async fn counter_expires_5_s_after_its_window() {
    let (redis, windows, _) = start();
    for seconds in [1, 60, 86_400] {
        let window = Quota::new(5, seconds).unwrap().window(&"demo".parse().unwrap(), now());
        for _ in 0..3 {
            count(&windows, &window).await.unwrap();
            let ends_at: u64 = redis.ask(&format!("PEXPIRETIME {}", key(&window)));
            assert_eq!(ends_at, (window.expires_at() + Duration::from_secs(5)).unix_ms(), "{seconds} s");
        }
    }
}

/// Redis would delete a key with an expiry in the past at once, so that every request would count as the
/// first.
#[tokio::test]
async fn rejects_a_window_that_ended_by_the_clock_of_redis() {
    let (redis, windows, _) = start();
    let recent = second_at(now() - Duration::from_secs(10));
    assert_eq!(count(&windows, &recent).await, Ok(1));
    assert_eq!(count(&windows, &recent).await, Ok(2));
    for _ in 0..2 {
        let fault = count(&windows, &second_at(now() - Duration::from_secs(3_600))).await.unwrap_err();
        let WindowStoreError::WindowExpired(late_ms) = fault else { panic!("{fault}") };
        assert!((3_580_000..3_600_000).contains(&late_ms), "{late_ms}");
        assert!(fault.to_string().contains("clocks differ"), "{fault}");
    }
    assert_eq!(redis.ask::<u64>("DBSIZE"), 1);
    assert_eq!(count(&windows, &recent).await, Ok(3), "the connection is kept");
}

/// A node whose clock is fast would admit the limit of a window that the other nodes use later.
#[tokio::test]
async fn rejects_a_window_that_opens_too_late_by_the_clock_of_redis() {
    let (redis, windows, _) = start();
    let soon = second_at(now() + Duration::from_secs(9));
    assert_eq!(count(&windows, &soon).await, Ok(1), "both clocks may be wrong by 5 s");
    for _ in 0..2 {
        let fault = count(&windows, &second_at(now() + Duration::from_secs(30))).await.unwrap_err();
        let WindowStoreError::WindowAhead(early_ms) = fault else { panic!("{fault}") };
        assert!((18_000..=20_000).contains(&early_ms), "{early_ms}");
        assert!(fault.to_string().contains("clocks differ"), "{fault}");
    }
    assert_eq!(redis.ask::<u64>("DBSIZE"), 1);
    assert_eq!(count(&windows, &soon).await, Ok(2), "the connection is kept");
}

#[tokio::test]
async fn counter_without_expiry_gets_one() {
    let (redis, windows, window) = start();
    redis.ask::<()>(&format!("SET {} 41", key(&window)));
    assert_eq!(count(&windows, &window).await, Ok(42));
    assert!(redis.ask::<i64>(&format!("TTL {}", key(&window))) > 0);
}

#[tokio::test]
async fn rejects_a_foreign_value() {
    let (redis, windows, window) = start();
    for foreign in ["SET", "LPUSH"] {
        redis.ask::<()>("FLUSHALL");
        redis.ask::<()>(&format!("{foreign} {} people", key(&window)));
        assert_eq!(count(&windows, &window).await, Err(WindowStoreError::ForeignKey));
    }
    redis.ask::<()>("FLUSHALL");
    redis.ask::<()>(&format!("SET {} -10", key(&window)));
    assert_eq!(count(&windows, &window).await, Err(WindowStoreError::ForeignKey), "less than was counted");
    redis.ask::<()>("FLUSHALL");
    assert_eq!(count(&windows, &window).await, Ok(1));
}
