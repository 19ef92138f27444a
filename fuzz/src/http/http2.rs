//! HTTP/2 replies, decoded from frames.

use std::collections::BTreeMap;

use enrich_contract::reply;
use http::Response;
use loona_hpack::Decoder;

// RFC 9113, 6 and 7.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Default)]
struct Reply {
    head: Option<http::response::Builder>,
    body: Vec<u8>,
    is_whole: bool,
}

/// Returns the statuses of the complete replies in `bytes`. Panics unless `bytes` are frames and each
/// complete reply is one that the specification allows.
pub(super) fn check(bytes: &[u8]) -> Vec<u16> {
    let replies = replies(bytes);
    // A reset, the client's flow-control window or the end of the connection can cut off a reply.
    replies.into_values().filter(|reply| reply.is_whole).map(check_reply).collect()
}

fn check_reply(Reply { head, body, .. }: Reply) -> u16 {
    let reply = head.and_then(|head| head.body(body).ok()).expect("a reply has a head");
    let status = reply.status().as_u16();
    let length = reply.headers().get("content-length").map(|length| length.as_bytes().to_vec());
    let length: usize = length.map_or(0, |length| {
        String::from_utf8_lossy(&length).parse().unwrap_or_else(|e| panic!("{length:?}: {e}"))
    });
    // In a reply to HEAD, the length is that of a body which is not sent. h2 itself replies to a head over 64
    // KiB: see `enrich_host`'s connection.rs.
    if reply.body().is_empty() && (length > 0 || status == 431) {
        return status;
    }
    assert_eq!(reply.body().len(), length);
    reply::check(&reply).unwrap_or_else(|error| panic!("{error}"));
    status
}

fn replies(mut bytes: &[u8]) -> BTreeMap<u32, Reply> {
    let mut replies = BTreeMap::<u32, Reply>::new();
    let mut hpack = Decoder::new();
    hpack.set_max_allowed_table_size(usize::MAX); // the client sets the limit
    let mut block = Vec::new();
    let mut ends_stream = false;
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head else { return replies };
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        // The end of the connection can cut off a frame.
        let Some((payload, rest)) = rest.split_at_checked(length) else { return replies };
        bytes = rest;
        match kind {
            DATA => {
                let reply = replies.get_mut(&stream).expect("a body comes after its head");
                reply.body.extend_from_slice(payload);
                reply.is_whole = flags & END_STREAM != 0;
            }
            HEADERS | CONTINUATION => {
                block.extend_from_slice(payload);
                ends_stream = if kind == HEADERS { flags & END_STREAM != 0 } else { ends_stream };
                if flags & END_HEADERS != 0 {
                    let fields = hpack.decode(&block).expect("a head is HPACK");
                    let reply =
                        Reply { head: Some(builder(fields)), is_whole: ends_stream, ..Reply::default() };
                    assert!(replies.insert(stream, reply).is_none(), "a second head on stream {stream}");
                    block.clear();
                }
            }
            _ => {}
        }
    }
    replies
}

fn builder(fields: Vec<(Vec<u8>, Vec<u8>)>) -> http::response::Builder {
    fields.into_iter().fold(Response::builder(), |reply, (name, value)| match &name[..] {
        b":status" => reply.status(&value[..]),
        _ => reply.header(name, value),
    })
}
