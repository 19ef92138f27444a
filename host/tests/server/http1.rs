//! HTTP/1.1 and HTTP/1.0.

use crate::client::{good, head, with_headers};
use crate::world::{BODY, World, key};

#[tokio::test(start_paused = true)]
async fn answers_a_lookup_and_keeps_the_connection() {
    let world = World::new();
    let mut client = world.connect();
    for id in ["lookup_018bcfe5680070008000000000000000", "lookup_018bcfe5680071018101010101010101"] {
        let reply = client.ask(good()).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
        assert!(reply.body.contains(id) && reply.body.contains("/in/ada-marlowe"), "{reply:?}");
        assert_eq!(reply.header("connection"), None);
        assert_eq!(reply.header("date"), None);
    }
    assert_eq!((world.balance().spent, world.balance().held), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn date_header_can_be_disabled() {
    let world = World::with(|services| services.date_header = true);
    assert!(world.connect().ask(good()).await.header("date").is_some());
    assert!(world.connect().ask("garbage\r\n\r\n").await.header("date").is_some());
}

#[tokio::test(start_paused = true)]
async fn unknown_path_is_404_and_other_method_405() {
    let world = World::new();
    let mut client = world.connect();
    for (request, status, allow) in [
        ("GET / HTTP/1.1", 404, None),
        ("OPTIONS * HTTP/1.1", 404, None),
        ("CONNECT api.example:443 HTTP/1.1", 404, None),
        ("GET /api/v1/person/enrich?x=1 HTTP/1.1", 405, Some("POST")),
        ("DELETE http://api.example/api/v1/person/enrich HTTP/1.1", 405, Some("POST")),
    ] {
        let reply = client.ask(format!("{request}\r\nhost: api.example\r\n\r\n")).await;
        assert_eq!((reply.status, reply.header("allow")), (status, allow), "{request}");
        assert_eq!(reply.body, r#"{"error":"invalid_request"}"#, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_a_chunked_body() {
    let world = World::new();
    let (a, b) = BODY.split_at(9);
    let chunks = format!("9\r\n{a}\r\n{:x};x=y\r\n{b}\r\n0\r\ntrailer: x\r\n\r\n", b.len());
    let reply = world.connect().ask(format!("{}transfer-encoding: chunked\r\n\r\n{chunks}", head())).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn rejects_a_body_over_4096_bytes() {
    let world = World::new();
    let padded = |bytes: usize| format!("{BODY}{}", " ".repeat(bytes - BODY.len()));
    let sized = |bytes| format!("{}content-length: {bytes}\r\n\r\n{}", head(), padded(bytes));
    let chunked = |bytes| {
        format!("{}transfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n", head(), padded(bytes))
    };
    assert_eq!(world.connect().ask(sized(4_096)).await.status, 200);
    assert_eq!(world.connect().ask(chunked(4_096)).await.status, 200);
    for request in [sized(4_097), chunked(4_097)] {
        let reply = world.connect().ask(request).await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert_eq!(world.seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn wrong_content_type_keeps_the_connection() {
    let world = World::new();
    let mut client = world.connect();
    let reply = client.ask(good().replace("application/json", "text/plain")).await;
    assert!(reply.is_invalid_request() && reply.header("connection").is_none(), "{reply:?}");
    assert_eq!(client.ask(good()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn sends_100_continue_before_the_body() {
    let world = World::new();
    let mut client = world.connect();
    client.send(format!("{}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", head(), BODY.len())).await;
    assert_eq!(client.reply().await.head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.ask(BODY).await.status, 200);
    assert_eq!(client.ask(good()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn sends_no_100_continue_for_a_rejected_body() {
    let world = World::new();
    for (expected, status) in [
        (format!("{}expect: 100-continue\r\ncontent-length: 5000\r\n\r\n", head()), 400),
        ("POST /x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n".into(), 404),
    ] {
        let mut client = world.connect();
        let reply = client.ask(expected).await;
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")));
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_http_1_0_without_host() {
    let world = World::new();
    let mut client = world.connect();
    client
        .send(format!(
            "POST /api/v1/person/enrich HTTP/1.0\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{BODY}",
            key().reveal(),
            BODY.len()
        ))
        .await;
    let reply = client.reply().await;
    assert!(reply.status == 200 && reply.head.starts_with("HTTP/1.0"), "{reply:?}");
    assert_eq!(client.rest().await, "");
}

#[tokio::test(start_paused = true)]
async fn answers_after_the_client_shuts_down_its_sending_side() {
    let world = World::new();
    let mut client = world.connect();
    client.send(good()).await;
    client.end_sending().await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order_up_to_the_first_malformed_one() {
    let world = World::new();
    let mut client = world.connect();
    client
        .send([good().as_str(), "GET / HTTP/1.1\r\nhost: x\r\n\r\n", "bad\r\n\r\n", &good()].concat())
        .await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.reply().await.status, 404);
    assert!(client.reply().await.is_invalid_request());
    assert_eq!(client.rest().await, "");
}

#[tokio::test(start_paused = true)]
async fn accepts_64_header_lines() {
    let world = World::new();
    assert_eq!(world.connect().ask(with_headers(&"x: y\r\n".repeat(64 - 4))).await.status, 200);
}
