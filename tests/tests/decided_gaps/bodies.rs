//! Errors in the body: `invalid_email` if `email` is wrong, `invalid_request` for everything else.

use enrich_tests::blackbox::{KNOWN, Payload, World};

use crate::body;

/// A missing, empty or non-string `email`: 400 `invalid_email`.
#[tokio::test]
async fn an_email_that_is_missing_empty_or_no_string_is_invalid_email() {
    let world = World::open().await;
    for client in world.clients(1).await {
        for body in [
            "{}",
            r#"{"email":""}"#,
            r#"{"email":null}"#,
            r#"{"email":true}"#,
            r#"{"email":1}"#,
            r#"{"email":1.5}"#,
            r#"{"email":["ada.marlowe@gmail.com"]}"#,
            r#"{"email":{"email":"ada.marlowe@gmail.com"}}"#,
        ] {
            client.post(body).await.assert_error(400, "invalid_email");
        }
    }
}

/// `invalid_request` for an unknown field takes precedence over `invalid_email`.
#[tokio::test]
async fn unknown_field_takes_precedence_over_invalid_email() {
    let world = World::open().await;
    for client in world.clients(1).await {
        for body in [
            r#"{"name":"Ada"}"#,
            r#"{"email":"","name":"Ada"}"#,
            r#"{"name":"Ada","email":null}"#,
            r#"{"email":"info@gmail.com","name":"Ada"}"#,
            r#"{"EMAIL":"ada.marlowe@gmail.com"}"#,
        ] {
            client.post(body).await.assert_error(400, "invalid_request");
        }
    }
}

/// A body that is not an object, invalid JSON, invalid UTF-8, a duplicate key, or trailing bytes.
#[tokio::test]
async fn what_is_not_one_json_object_is_invalid_request() {
    let world = World::open().await;
    let deep = "[".repeat(2_000);
    for client in world.clients(1).await {
        for body in [
            &b""[..],
            b" ",
            b"null",
            b"7",
            b"\"ada.marlowe@gmail.com\"",
            b"[\"ada.marlowe@gmail.com\"]",
            b"[{\"email\":\"ada.marlowe@gmail.com\"}]",
            b"{",
            b"{\"email\":\"ada.marlowe@gmail.com\"",
            b"{\"email\":\"ada.marlowe@gmail.com\",}",
            b"{email:\"ada.marlowe@gmail.com\"}",
            b"{'email':'ada.marlowe@gmail.com'}",
            b"email=ada.marlowe@gmail.com",
            b"{\"email\":\"\xff@gmail.com\"}",
            b"{\"email\":\"\xc3\x28@gmail.com\"}",
            b"\xff\xfe{\0}\0",
            b"\xef\xbb\xbf{\"email\":\"ada.marlowe@gmail.com\"}",
            b"{\"email\":\"\\ud800@gmail.com\"}",
            b"{\"email\":\"ada.marlowe@gmail.com\",\"email\":\"ada.marlowe@gmail.com\"}",
            b"{\"email\":\"ada.marlowe@gmail.com\",\"\\u0065mail\":\"x\"}",
            b"{\"email\":\"ada.marlowe@gmail.com\"}{}",
            b"{\"email\":\"ada.marlowe@gmail.com\"}\0",
            b"{\"email\":\"ada.marlowe@gmail.com\"} x",
            b"// {}\n{\"email\":\"ada.marlowe@gmail.com\"}",
            deep.as_bytes(),
        ] {
            let reply = client.post(body.to_vec()).await;
            assert_eq!(
                (reply.status, reply.json()["error"].as_str()),
                (400, Some("invalid_request")),
                "{}",
                body.escape_ascii()
            );
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

#[tokio::test]
async fn json_may_be_written_in_every_way_that_json_has() {
    let world = World::open().await;
    for client in world.clients(9).await {
        for body in [
            " {\r\n\t\"email\" : \"ada.marlowe@gmail.com\" }\n",
            r#"{"\u0065mail":"ada.marlowe\u0040gmail.com"}"#,
        ] {
            client.post(body).await.assert_status(200);
        }
    }
}

/// A wrong or missing content type. Parameters are ignored, because JSON is always UTF-8.
#[tokio::test]
async fn the_content_type_is_json_with_any_parameters_and_no_other() {
    let world = World::open().await;
    for client in world.clients(99).await {
        for (content_types, status) in [
            (&["application/json"][..], 200),
            (&["Application/JSON"], 200),
            (&["application/json; charset=utf-8"], 200),
            (&["application/json;charset=latin1"], 200),
            (&["application/json ;x=\"y\""], 200),
            (&[], 400),
            (&[""], 400),
            (&["text/json"], 400),
            (&["text/plain"], 400),
            (&["application/jsonx"], 400),
            (&["application/json5"], 400),
            (&["application/problem+json"], 400),
            (&["application/json, text/plain"], 400),
            (&["application/x-www-form-urlencoded"], 400),
            (&["*/*"], 400),
            (&["application/json", "application/json"], 400),
        ] {
            let key = format!("Bearer {}", client.tenant.key);
            let mut request = client.bare_request().header("authorization", key);
            for content_type in content_types {
                request = request.header("content-type", *content_type);
            }
            let reply = client.send(request.body(body(KNOWN).into()).unwrap()).await;
            assert_eq!(reply.status, status, "{content_types:?}");
            if status == 400 {
                reply.assert_error(400, "invalid_request");
            }
        }
    }
}

/// A body over 4 KiB, with or without `content-length`, even if it is otherwise valid.
#[tokio::test]
async fn a_body_of_4096_bytes_is_read_and_one_more_byte_is_too_many() {
    let world = World::open().await;
    let padded = |bytes: usize| {
        let body = body(KNOWN);
        format!("{body}{}", " ".repeat(bytes - body.len()))
    };
    for client in world.clients(9).await {
        for (bytes, status) in [(4_096, 200), (4_097, 400), (100_000, 400)] {
            for payload in [Payload::from(padded(bytes)), Payload::unsized_of(padded(bytes))] {
                let reply = client.post(payload).await;
                assert_eq!(reply.status, status, "{bytes} {:?}", client.transport);
                if status == 400 {
                    reply.assert_error(400, "invalid_request");
                }
            }
        }
    }
}
