//! The admin listener: health checks and the version.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use crate::commands::status;
use crate::enrich::admin::{ADMIN, Scrape, get, wait_until_failed, wait_until_ready};
use crate::enrich::block_on;
use crate::enrich::{EMAIL, Enrich, eventually};
use enrich_tests::servers::{Postgres, Redis};
use serde_json::Value;

#[test]
fn is_alive_and_ready_and_lists_its_checks() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&[ADMIN]);
    let admin = server.admin();
    assert_eq!(get(admin, "/livez"), (200, "ok\n".to_owned()));
    wait_until_ready(admin);
    assert_eq!(get(admin, "/readyz").1, "ok\n");
    let (status, checks) = get(admin, "/readyz?verbose");
    assert_eq!(status, 200);
    let names = ["people", "accounts", "rate_limits", "disk", "shutdown"];
    let expected: String = names.iter().map(|name| format!("[+]{name} ok\n")).collect();
    assert_eq!(checks, expected + "ok\n");
    let version: Value = serde_json::from_str(&get(admin, "/version").1).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let printed = enrich.ok(&["openapi"]);
    assert_eq!(get(admin, "/openapi.json"), (200, printed + "\n"));
    assert_eq!(enrich.ok(&["health", "--url", &format!("http://{admin}")]), "ready");
    let config = enrich.file("enrich.toml", format!("[admin]\nlisten = \"{admin}\"\n"));
    assert_eq!(enrich.ok(&["health", "--config", config.to_str().unwrap()]), "ready");
    let everywhere = format!("0.0.0.0:{}", admin.port());
    let variable = enrich.command(&["health"]).env("ENRICH_ADMIN_LISTEN", everywhere).output().unwrap();
    assert_eq!((variable.status.code(), &variable.stdout[..]), (Some(0), &b"ready\n"[..]));
}

/// More clients than the listener accepts at once send nothing.
#[test]
fn silent_clients_delay_a_check_by_seconds_only() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&[ADMIN]);
    let mut silent: Vec<_> = (0..100).map(|_| TcpStream::connect(server.admin()).unwrap()).collect();
    silent.iter_mut().step_by(2).for_each(|client| client.write_all(b"GET /livez HTTP/1.1\r\n").unwrap());
    assert_eq!(get(server.admin(), "/livez").0, 200);
}

#[test]
fn is_not_ready_while_it_stops_and_still_serves() {
    let (enrich, key) = Enrich::with_key(1, 500);
    let server = enrich.serve(&[ADMIN]);
    let admin = server.admin();
    wait_until_ready(admin);
    let mut client = server.connect();
    assert_eq!(client.enrich(&key, EMAIL).unwrap().status, 404);
    server.terminate();
    assert_eq!(wait_until_failed(admin, "shutdown"), "the server is stopping");
    assert_eq!(get(admin, "/livez").0, 200);
    assert_eq!(client.enrich(&key, EMAIL).unwrap().status, 404, "the connection is still served");
    server.wait();
}

#[cfg(feature = "servers")]
#[test]
fn is_not_ready_while_redis_is_down() {
    let (enrich, key) = Enrich::with_key(10, 500);
    let redis = Redis::start();
    let server = enrich.serve(&[ADMIN, "--windows", &redis.url()]);
    let admin = server.admin();
    wait_until_ready(admin);
    let health = || enrich.run(&["health", "--url", &format!("http://{admin}")]);
    redis.kill();
    let reason = wait_until_failed(admin, "rate_limits");
    assert!(reason.contains("Redis"), "{reason}");
    assert_eq!(status(&server, &key, EMAIL), 503);
    for (sample, value) in [
        (r#"enrich_store_up{store="redis"}"#, 0.0),
        (r#"enrich_store_up{store="sqlite"}"#, 1.0),
        (r#"enrich_check_ok{check="rate_limits"}"#, 0.0),
        ("enrich_ready", 0.0),
        (r#"enrich_port_failures_total{port="windows"}"#, 1.0),
        (r#"enrich_lookups_total{outcome="rate_limit_unavailable"}"#, 1.0),
    ] {
        assert_eq!(Scrape::of(admin).value(sample), Some(value), "{sample}");
    }
    let ran = health();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.starts_with("error: not ready: rate_limits failed: "), "{}", ran.stderr);
    redis.restart();
    // Without a lookup: a load balancer sends none.
    wait_until_ready(admin);
    assert!(server.stop().contains("Redis"), "the log has the reason");
    let ran = health();
    assert_eq!(ran.code, Some(1), "an unreachable server is unhealthy");
    assert!(
        ran.stderr.contains(&format!("cannot reach http://{admin}: Connection refused")),
        "{}",
        ran.stderr
    );
}

#[cfg(feature = "servers")]
#[test]
fn is_not_ready_while_postgresql_is_down() {
    let mut postgres = Postgres::start();
    let url = postgres.url(&block_on(postgres.create_database()));
    let enrich = Enrich::with_database(url);
    enrich.make_key(10, 500);
    let server = enrich.serve(&[ADMIN]);
    let admin = server.admin();
    wait_until_ready(admin);
    postgres.kill();
    let reason = wait_until_failed(admin, "accounts");
    assert!(reason.starts_with("the changes of API keys could not be read: "), "{reason}");
    assert!(!reason.contains("postgres://"), "{reason}");
    let lags = || {
        let metrics = Scrape::of(admin);
        ["enrich_tick_lag_seconds", "enrich_statistics_lag_seconds"].map(|lag| metrics.value(lag).unwrap())
    };
    eventually("both lags grow", || lags().iter().all(|lag| *lag > 3.0).then_some(()));
    postgres.restart();
    wait_until_ready(admin);
    eventually("nothing is late", || lags().iter().all(|lag| *lag < 3.0).then_some(()));
}

#[test]
fn starting_server_is_alive_and_not_ready() {
    // A database that accepts the connection and never replies.
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let enrich = Enrich::with_database(format!("postgres://{}/enrich", database.local_addr().unwrap()));
    let mut serve =
        enrich.command(&["serve", "--listen", "127.0.0.1:0", &format!("ENRICH_ADMIN_LISTEN={free}")]);
    let mut server = serve.stderr(Stdio::null()).spawn().unwrap();
    eventually("it has an admin listener", || TcpStream::connect(free).ok());
    let reason = wait_until_failed(free, "startup");
    assert!(reason.contains("being opened"), "{reason}");
    assert_eq!(get(free, "/livez").0, 200);
    server.kill().unwrap();
    server.wait().unwrap();
}
