//! Every reply as it comes over the wire, byte for byte. What differs by its nature is replaced: the date, the lookup
//! id, and how many seconds a window lasts on.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_tests::blackbox::{KNOWN, Lookup, Mood, Step, UNKNOWN, World};

#[tokio::test]
async fn every_reply_is_as_it_was() {
    let world = World::open().await;
    let key = world.tenant(9, 1).await.key;
    let spare = world.lookup(UNKNOWN, 1).await;
    let lookup = |email: &str| Lookup { key: key.clone(), body: format!(r#"{{"email":"{email}"}}"#) };
    let with_body = |body: &str| Lookup { body: body.into(), ..lookup(KNOWN) }.whole();
    let stranger = Lookup { key: "none".into(), body: String::new() };
    let good = lookup(KNOWN).whole();
    let head = "HEAD /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\n\r\n";

    let mut shown = String::new();
    for (name, fault, request) in [
        ("400 invalid_request", None, with_body("{")),
        ("400 invalid_request: too large", None, with_body(&" ".repeat(4_097))),
        ("400 invalid_email", None, lookup("ada").whole()),
        ("400 unsupported_email", None, lookup("info@gmail.com").whole()),
        ("404 not_found", None, lookup(UNKNOWN).whole()),
        ("502 lookup_error", Some(Step::FindPerson), good.clone()),
        ("200 found", None, good.clone()),
        ("402 insufficient_credits", None, good.clone()),
        ("500 server_error, with credits", Some(Step::Hold), good.clone()),
        ("429 rate_limited", None, good.clone()),
        ("401 unauthorized", None, stranger.whole()),
        ("500 server_error, with keys", Some(Step::FindKey), good.clone()),
        ("503 rate_limit_unavailable", Some(Step::Count), good.clone()),
        ("another path", None, good.replace("/enrich", "/enrol")),
        ("another method", None, head.replace("HEAD", "GET")),
        ("HEAD, which has no body by definition", None, head.into()),
        ("no HTTP", None, "hello\r\n\r\n".into()),
        ("no host", None, good.replace("host: api.example\r\n", "")),
        ("a client that expects 100 Continue", None, spare.with("expect: 100-continue\r\n")),
        ("HTTP/1.0", None, spare.whole().replace("HTTP/1.1", "HTTP/1.0")),
    ] {
        world.tap.all_work();
        if let Some(step) = fault {
            world.tap.set(step, Mood::Fails);
        }
        let mut client = world.raw().await;
        client.send(request).await;
        client.end_sending().await;
        let reply = String::from_utf8(client.bytes().await).unwrap();
        shown += &format!("=== {name} ===\n{}\n\n", printable(&reply));
    }
    insta::assert_snapshot!(shown);
}

/// Line ends can be seen, and what differs by its nature is named.
fn printable(reply: &str) -> String {
    let lines = reply.split_inclusive("\r\n").map(|line| match line.split_once(": ") {
        Some(("date", _)) => "date: <date>\r\n".to_owned(),
        Some((name @ ("ratelimit-reset" | "retry-after"), _)) => format!("{name}: <seconds>\r\n"),
        _ => without_id(line),
    });
    lines.collect::<String>().replace("\r\n", "\\r\\n\n")
}

fn without_id(line: &str) -> String {
    match line.split_once("\"lookup_id\":\"lookup_") {
        Some((before, after)) => format!("{before}\"lookup_id\":\"lookup_<id>{}", &after[32..]),
        None => line.to_owned(),
    }
}
