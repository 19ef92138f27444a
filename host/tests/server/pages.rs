//! A server of pages: clients that send nothing, half a request or no acknowledgement cannot exclude others.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::http2;
use crate::test_server::TestServer;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: pages.example\r\n\r\n";

/// Exceeds all buffers between client and server.
const LARGE: usize = 1_000_000;

fn server() -> TestServer {
    TestServer::of_pages(|limits| {
        limits.connections_max = 8;
        limits.connections_per_address_max = 3;
        limits.idle_timeout = Duration::from_secs(60);
    })
}

#[tokio::test(start_paused = true)]
async fn silent_and_half_sent_requests_give_way_to_others() {
    let server = server();
    let mut signed_in = server.connect();
    assert_eq!(signed_in.send(REQUEST).await.status, 200);
    let mut stalled: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for (n, client) in stalled.iter_mut().enumerate().skip(10) {
        let part = if n % 2 == 0 {
            &REQUEST[..20]
        } else {
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"
        };
        client.write(part).await;
    }
    assert_eq!(server.connect().send(REQUEST).await.status, 200);
    assert_eq!(signed_in.send(REQUEST).await.status, 200);
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_address_has_its_share_of_connections() {
    let server = server();
    for network in ["192.0.2.1", "2001:db8:1:2::"] {
        let first: Vec<_> = (0..3).map(|_| server.connect_from(network)).collect();
        let mut refused = server.connect_from(network);
        assert_eq!(refused.read_to_end().await, "");
        let other = if network.contains(':') { "2001:db8:1:3::1" } else { "192.0.2.2" };
        assert_eq!(server.connect_from(other).send(REQUEST).await.body, format!("page of {other}"));
        drop(first);
    }
    let _same: Vec<_> = (0..3).map(|n| server.connect_from(&format!("2001:db8:1:4::{n}"))).collect();
    assert_eq!(server.connect_from("2001:db8:1:4:ffff::").read_to_end().await, "");
}

#[tokio::test(start_paused = true)]
async fn closes_connections_without_a_complete_head_after_10_s() {
    for part in ["", "GET / HT", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r", http2::PREFACE] {
        for serve in [server as fn() -> _, TestServer::new] {
            let server = serve();
            let mut client = server.connect();
            client.write(part).await;
            client.read_to_end().await;
            assert_eq!(server.elapsed_seconds(), 10, "{part:?}");
        }
    }
}

/// The client answers the pings of the server.
#[tokio::test(start_paused = true)]
async fn closes_idle_http2_connections_after_60_s() {
    let server = server();
    let mut client = http2::Client::connect(&server).await;
    let page = Request::get("http://pages.example/").body(Full::default()).unwrap();
    assert_eq!(client.send(page).await, (200, "page of 127.0.0.1".to_owned()));
    client.closed().await.unwrap();
    assert_eq!(server.elapsed_seconds(), 60);
}

#[tokio::test(start_paused = true)]
async fn closes_connections_that_never_read() {
    let server = server();
    let mut client = server.connect_raw(1_024);
    client.write_all(&REQUEST.replace("/ ", "/large ").into_bytes()).await.unwrap();
    sleep(Duration::from_secs(60 + 5 + 1)).await;
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert!(received.starts_with(b"HTTP/1.1 200") && received.len() <= 1_024, "{}", received.len());
}

#[tokio::test(start_paused = true)]
async fn rejects_large_heads_before_they_are_complete() {
    let server = server();
    let mut client = server.connect();
    client.write(REQUEST.replace("\r\n\r\n", "\r\ncookie: ")).await;
    client.write("x".repeat(16 * 1_024)).await;
    assert_eq!(client.read_reply().await.status, 431);
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn rejects_ambiguous_heads_like_the_server_of_lookups() {
    let server = server();
    for head in [
        "",
        "host: a.example\r\nhost: a.example\r\n",
        "host: a.example/x\r\n",
        "host: a.example, b.example\r\n",
        "host: a.example\r\ntransfer-encoding: gzip, chunked\r\n",
        "host: a.example\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    ] {
        let mut client = server.connect();
        let reply = client.send(format!("POST / HTTP/1.1\r\n{head}\r\n0\r\n\r\n")).await;
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{head}");
        assert_eq!(client.read_to_end().await, "");
    }
    // A proxy in front may have taken the length for the end of the body.
    let mut client = server.connect();
    let both = "host: a.example\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n";
    let reply = client.send(format!("POST / HTTP/1.1\r\n{both}\r\n0\r\n\r\n")).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
}

#[tokio::test(start_paused = true)]
async fn keeps_an_empty_reply_of_the_service() {
    let server = server();
    let mut client = server.connect();
    let reply = client.send(REQUEST.replace("/ ", "/empty ")).await;
    assert_eq!((reply.status, reply.header("content-length"), reply.body.as_str()), (303, Some("0"), ""));
    assert_eq!(client.send(REQUEST).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn shutdown_announces_the_close_and_completes_requests() {
    let server = server();
    let (mut idle, mut slow) = (server.connect(), server.connect());
    assert_eq!(idle.send(REQUEST).await.header("connection"), None);
    slow.write(REQUEST.replace("/ ", "/slow ")).await;
    server.stop.cancel();
    sleep(Duration::from_millis(900)).await;
    let mut new = server.connect();
    for client in [&mut idle, &mut new] {
        assert_eq!(client.send(REQUEST).await.header("connection"), Some("close"));
    }
    assert_eq!(slow.read_reply().await.status, 200);
    assert_eq!(server.elapsed_seconds(), 3);
    drop((idle, new, slow));
    server.task.await.unwrap();
}

/// Answers requests with the address of their peer.
pub async fn page(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let peer = request.extensions().get::<enrich_host::pages::Peer>().unwrap().0;
    let status = if request.uri() == "/empty" { 303 } else { 200 };
    let body = match request.uri().path() {
        "/large" => "x".repeat(LARGE),
        "/empty" => String::new(),
        _ => format!("page of {peer}"),
    };
    match request.uri().path() {
        "/slow" => sleep(Duration::from_secs(3)).await,
        _ => drop(http_body_util::BodyExt::collect(request.into_body()).await),
    }
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}
