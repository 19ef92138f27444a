//! JSON replacements for the replies that hyper's HTTP/1 server generates itself: 400, 414 and 431 to
//! malformed requests, without a body.
//!
//! "All responses carry JSON bodies" (specification 4). Each of these replies is therefore replaced with this
//! server's reply to a malformed request before it is written.

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;

/// Returns whether `out` is a reply that hyper generated itself. Such a reply is always at the start of a
/// write, because hyper parses a head only after it has flushed the previous reply.
pub(crate) fn is_from_hyper(out: &[u8]) -> bool {
    // The server's own replies end with a body, so they fail this first test.
    out.ends_with(b"\r\n\r\n")
        && out.starts_with(b"HTTP/1.")
        && lines(out).any(|line| line == b"content-length: 0")
}

/// Returns `malformed` as a replacement, with the version and date of the original. The connection closes
/// after it.
pub(crate) fn replacement(original: &[u8], malformed: &Response<Bytes>) -> Bytes {
    let version = original.get(..b"HTTP/1.1".len()).unwrap_or(b"HTTP/1.1");
    let body = malformed.body();

    let mut reply = BytesMut::with_capacity(256);
    reply.put(version);
    reply.put(format!(" {}\r\n", malformed.status()).as_bytes());
    for (name, value) in malformed.headers() {
        put_header(&mut reply, name.as_str(), value.as_bytes());
    }
    put_header(&mut reply, "connection", b"close");
    put_header(&mut reply, "content-length", body.len().to_string().as_bytes());
    if let Some(date) = lines(original).find_map(|line| line.strip_prefix(b"date: ")) {
        put_header(&mut reply, "date", date);
    }
    reply.put(&b"\r\n"[..]);
    reply.put(&body[..]);
    reply.freeze()
}

fn put_header(reply: &mut BytesMut, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        reply.put(part);
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use enrich_lib::model::{LookupId, Timestamp};
    use enrich_lib::refusal::Rejection;
    use enrich_lib::wire;

    use super::*;

    const FROM_HYPER: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
        content-length: 0\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

    #[test]
    fn detects_only_replies_that_hyper_generated() {
        assert!(is_from_hyper(FROM_HYPER));
        for other in [
            &b""[..],
            b"\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 27\r\n\r\n", // to HEAD
        ] {
            assert!(!is_from_hyper(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn replacement_keeps_version_and_date() {
        let request_id = LookupId::new(Timestamp::default(), [0; 10]);
        let malformed = wire::rejection(Rejection::Malformed, request_id);
        assert_eq!(
            replacement(FROM_HYPER, &malformed),
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
             request-id: lookup_00000000000070008000000000000000\r\nconnection: close\r\n\
             content-length: 27\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n{\"error\":\"invalid_request\"}"
        );
        assert!(
            replacement(b"HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\n\r\n", &malformed)
                .starts_with(b"HTTP/1.0 400")
        );
    }
}
