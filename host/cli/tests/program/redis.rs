//! The server with Redis as its rate-limit store: access and TLS.

use crate::commands::status;
use crate::enrich::{EMAIL, Enrich};
use enrich_tests::servers::{Redis, RedisOptions};

fn shop() -> (Enrich, String) {
    Enrich::with_ada(1_000, 1_000)
}

#[test]
fn does_not_start_if_redis_cannot_count() {
    let (enrich, _) = shop();
    let redis = Redis::start();
    redis.ask::<()>("ACL SETUSER counter on >hunter2 ~enrich:* +ping");
    for (url, code, expected) in [
        (redis.url_of("counter", "hunter3"), 1, "Redis rejected the user or password"),
        (redis.url_of("counter", "hunter2"), 1, "the Redis user lacks permissions; it needs ~enrich:* +ping"),
        ("redis://counter:hunter2@127.0.0.1:1".to_owned(), 4, "cannot connect to Redis"),
    ] {
        let serve = ["--windows", &url];
        let error = enrich.try_serve(&serve).err().expect("does not start");
        let ran = enrich.run(&[&["serve", "--listen", "127.0.0.1:0"], &serve[..]].concat());
        assert_eq!(ran.code, Some(code), "{error}");
        assert!(
            error.contains("cannot use redis://counter@127.0.0.1:") && error.contains(expected),
            "{error}"
        );
        assert!(!error.contains("hunter"), "{error}");
    }
}

#[test]
fn trusts_the_certificates_of_a_file() {
    let (enrich, key) = shop();
    let redis = Redis::with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let authority = enrich.file("redis-ca.pem", redis.authority());
    let config = format!("windows = \"{}\"\nwindows_ca = \"redis-ca.pem\"\n", redis.tls_url());
    let config = enrich.file("enrich.toml", config);
    let flags =
        ["--windows", &redis.tls_url(), &format!("ENRICH_WINDOWS_CA={}", authority.to_str().unwrap())];
    for args in [&flags[..], &["--config", config.to_str().unwrap()]] {
        let server = enrich.serve(args);
        assert_eq!(status(&server, &key, EMAIL), 200);
    }
    assert!(redis.ask::<u64>("DBSIZE") > 0, "it counts there");
    // The system trusts other certificates, or none.
    let serve = ["--windows", &redis.tls_url()];
    let error = enrich.try_serve(&serve).err().expect("does not start");
    assert!(error.contains("certificate"), "{error}");
}
