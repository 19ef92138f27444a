//! Authentication, permissions and transports.

use std::time::Duration;

use enrich_redis::{OpenError, RedisUrl, RedisWindows, WindowStoreError};
use enrich_tests::servers::{Redis, RedisOptions};

use super::{cause, count, key, long_timeouts, now, open, window};

/// The permissions that a Redis user needs, as in the adapter's documentation.
const RIGHTS: &str = "~enrich:* +ping +evalsha +script|load +time +pttl +set +incrby +pexpireat";

#[tokio::test]
async fn missing_right_is_reported_with_the_required_rights() {
    let redis = Redis::start();
    for (i, right) in RIGHTS.split(' ').enumerate() {
        let rights: Vec<_> = RIGHTS.split(' ').filter(|other| *other != right).collect();
        redis.ask::<()>(&format!("ACL SETUSER counter-{i} on >hunter2 {}", rights.join(" ")));
        redis.ask::<()>("SCRIPT FLUSH");
        redis.ask::<()>("FLUSHALL");
        let windows = open(&redis.url_of(&format!("counter-{i}"), "hunter2"), long_timeouts());
        let [new, endless] = ["new", "endless"].map(window);
        redis.ask::<()>(&format!("SET {} 1", key(&endless)));
        let counts =
            [count(&windows, &new).await, count(&windows, &new).await, count(&windows, &endless).await];
        let fault = counts.into_iter().find_map(Result::err).unwrap();
        assert_eq!(fault, WindowStoreError::NotAllowed, "without {right}");
        assert!(fault.to_string().contains(right), "{fault}");
        assert_ne!(redis.ask::<i64>(&format!("TTL {}", key(&new))), -1, "left without an end");
        // No check needs `pexpireat`, which repairs counters of other programs.
        let expected = if right == "+pexpireat" { Ok(()) } else { Err(WindowStoreError::NotAllowed) };
        assert_eq!(windows.check(now()).await, expected, "without {right}");
    }
}

#[tokio::test]
async fn documented_rights_suffice_and_a_check_leaves_nothing() {
    let redis = Redis::start();
    redis.ask::<()>(&format!("ACL SETUSER counter on >hunter2 {RIGHTS}"));
    let windows = open(&redis.url_of("counter", "hunter2"), long_timeouts());
    assert_eq!(windows.check(now()).await, Ok(()));
    assert_eq!(windows.check(now()).await, Ok(()), "while the first check is not forgotten");
    let keys: Vec<String> = redis.ask("KEYS *");
    for key in keys {
        assert!((0..=75).contains(&redis.ask::<i64>(&format!("TTL {key}"))), "{key}");
    }
    assert_eq!(count(&windows, &window("demo")).await, Ok(1));
}

#[tokio::test]
async fn check_finds_what_every_count_would_find() {
    let redis = Redis::start();
    let windows = open(&redis.url_of("counter", "hunter3"), long_timeouts());
    assert_eq!(windows.check(now()).await, Err(WindowStoreError::AuthenticationFailed));
    let windows = open(&format!("{}/99", redis.url()), long_timeouts());
    assert_eq!(windows.check(now()).await, Err(WindowStoreError::NoDatabase));
    let windows = open(&redis.url().replace("redis:", "redis+cluster:"), long_timeouts());
    assert_eq!(windows.check(now()).await, Err(WindowStoreError::NoCluster));
    let windows = open(&redis.url(), long_timeouts());
    let [ahead, behind] = [|s| now() + Duration::from_secs(s), |s| now() - Duration::from_secs(s)];
    for (time, is_countable) in
        [(ahead(68), true), (ahead(80), false), (behind(70), true), (behind(76), false)]
    {
        assert_eq!(windows.check(time).await.is_ok(), is_countable, "{time:?}");
    }
    redis.ask::<()>("REPLICAOF 127.0.0.1 1");
    assert_eq!(windows.check(now()).await, Err(WindowStoreError::ReadOnly));
    redis.kill();
    let fault = windows.check(now()).await.unwrap_err();
    assert!(matches!(fault, WindowStoreError::Unreachable(_)), "{fault}");
}

#[tokio::test]
async fn wrong_password_is_rejected_and_not_printed() {
    let redis = Redis::start();
    redis.ask::<()>(&format!("ACL SETUSER counter on >hunter2 {RIGHTS}"));
    for (user, password) in [("counter", "hunter3"), ("unknown", "hunter3")] {
        let windows = open(&redis.url_of(user, password), long_timeouts());
        let fault = count(&windows, &window("demo")).await.unwrap_err();
        assert_eq!(fault, WindowStoreError::AuthenticationFailed);
        assert!(!format!("{fault} {fault:?} {windows:?}").contains("hunter3"), "{fault:?} {windows:?}");
    }
    // Without a user.
    redis.ask::<()>("CONFIG SET requirepass hunter2");
    let client = open(&redis.url(), long_timeouts());
    assert_eq!(count(&client, &window("demo")).await, Err(WindowStoreError::AuthenticationFailed));
    let windows = open(&redis.url_of("", "hunter2"), long_timeouts());
    assert_eq!(count(&windows, &window("demo")).await, Ok(1));
}

#[tokio::test]
async fn counts_over_a_unix_socket() {
    let redis = Redis::start();
    let windows = open(&format!("redis+unix://{}", redis.socket().display()), long_timeouts());
    assert_eq!(count(&windows, &window("demo")).await, Ok(1));
}

#[tokio::test]
async fn tls_accepts_only_the_trusted_authority() {
    let [redis, other] =
        [(); 2].map(|()| Redis::with(&RedisOptions { tls: true, ..RedisOptions::default() }));
    let url: RedisUrl = redis.tls_url().parse().unwrap();
    let trusting = |authority: &str| RedisWindows::open(&url.clone().trusting(authority), long_timeouts(), 7);
    let both = [other.authority(), redis.authority()].concat();
    assert_eq!(count(&trusting(&both).unwrap(), &window("demo")).await, Ok(1));
    for client in [trusting(other.authority()), RedisWindows::open(&url, long_timeouts(), 7)] {
        let Ok(client) = client else { continue }; // no root certificates are installed
        let fault = cause(count(&client, &window("demo")).await.unwrap_err());
        assert!(
            matches!(&fault, WindowStoreError::Unreachable(why) if why.contains("certificate")),
            "{fault}"
        );
    }
    assert!(matches!(trusting("no certificate"), Err(OpenError::Roots(_))));
    let plain = redis.url().replace("redis:", "rediss:");
    let no_tls = plain.parse::<RedisUrl>().unwrap().trusting(redis.authority());
    let no_tls = RedisWindows::open(&no_tls, long_timeouts(), 7).unwrap();
    assert!(count(&no_tls, &window("demo")).await.is_err(), "no TLS there");
}
