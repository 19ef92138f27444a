//! HTTP/2 replies, decoded from frames.

use std::collections::BTreeMap;

use http::Response;
use loona_hpack::Decoder;

use super::is_billed;

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

/// Returns the number of heads that a client sends in these frames.
pub(super) fn heads(mut bytes: &[u8]) -> usize {
    let mut heads = 0;
    while let Some((frame, rest)) = Frame::split(bytes) {
        heads += usize::from(frame.kind == HEADERS);
        bytes = rest;
    }
    heads
}

/// Returns the number of complete replies in `bytes` that are billed. Panics unless `bytes` are frames and
/// each complete reply is one that the specification allows.
pub(super) fn billed(bytes: &[u8]) -> usize {
    let replies = replies(bytes);
    // A reset, the client's flow-control window or the end of the connection can cut off a reply.
    let whole = replies.into_values().filter(|reply| reply.is_whole);
    whole.map(|reply| usize::from(check_reply(reply))).sum()
}

/// Returns whether the reply is billed.
fn check_reply(Reply { head, body, .. }: Reply) -> bool {
    let reply = head.and_then(|head| head.body(body).ok()).expect("a reply has a head");
    let status = reply.status().as_u16();
    let length = reply.headers().get("content-length").map(|length| length.as_bytes().to_vec());
    let length: usize = length.map_or(0, |length| {
        String::from_utf8_lossy(&length).parse().unwrap_or_else(|e| panic!("{length:?}: {e}"))
    });
    // In a reply to HEAD, the length is that of a body which is not sent. h2 itself replies to a head over 64
    // KiB: see `enrich_host`'s connection.rs.
    if reply.body().is_empty() && (length > 0 || status == 431) {
        return false;
    }
    assert_eq!(reply.body().len(), length);
    is_billed(&reply)
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits `bytes` into the first frame and the rest. Returns `None` if the end of the connection cuts off
    /// the frame.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[l0, l1, l2, kind, flags, s0, s1, s2, s3], rest) = bytes.split_first_chunk()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        Some((Self { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload }, rest))
    }
}

fn replies(mut bytes: &[u8]) -> BTreeMap<u32, Reply> {
    let mut replies = BTreeMap::<u32, Reply>::new();
    let mut hpack = Decoder::new();
    hpack.set_max_allowed_table_size(usize::MAX); // the client sets the limit
    let mut block = Vec::new();
    let mut ends_stream = false;
    while let Some((Frame { kind, flags, stream, payload }, rest)) = Frame::split(bytes) {
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
