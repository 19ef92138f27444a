//! HTTP/1 replies in sequence.

use http::Response;

use super::is_billed;

/// Returns the status of each reply in `bytes`, and whether it is billed. Panics unless these are complete
/// replies that the specification allows. Without `has_head`, none is a reply to HEAD.
pub(super) fn check(mut bytes: &[u8], has_head: bool) -> Vec<(u16, bool)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let (reply, rest) =
            split_reply(bytes, has_head).unwrap_or_else(|| panic!("{}", bytes.escape_ascii()));
        bytes = rest;
        if reply.status() == 100 {
            continue; // an interim reply; the final reply must follow, unless the body never arrived
        }
        // The reply to HEAD has the length of a body that is not sent.
        let length = reply.headers().get("content-length");
        let has_body = !reply.body().is_empty() || length.is_some_and(|length| length == "0");
        replies.push((reply.status().as_u16(), has_body && is_billed(&reply)));
    }
    replies
}

/// Returns whether two connections received the same replies. One may end with an additional 400: hyper
/// validates the start of a head as soon as it arrives, and after that only the complete head, so it detects
/// garbage early only in the first read.
pub(super) fn are_equivalent(first: &[u8], second: &[u8], has_head: bool) -> bool {
    let (short, long) = if first.len() < second.len() { (first, second) } else { (second, first) };
    long.strip_prefix(short).is_some_and(|more| more.is_empty() || check(more, has_head) == [(400, false)])
}

/// Splits `bytes` into the first reply and the rest.
fn split_reply(bytes: &[u8], has_head: bool) -> Option<(Response<&[u8]>, &[u8])> {
    let head_bytes = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, rest) = (str::from_utf8(&bytes[..head_bytes]).ok()?, &bytes[head_bytes + 4..]);
    let mut lines = head.split("\r\n");
    let mut start = lines.next()?.splitn(3, ' ');
    let (_version, status) = (start.next().filter(|v| ["HTTP/1.1", "HTTP/1.0"].contains(v))?, start.next()?);

    let mut reply = Response::builder().status(status);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        reply = reply.header(name, value);
    }
    let length = match reply.headers_ref()?.get("content-length") {
        Some(length) => length.to_str().ok()?.parse().ok()?,
        None if status == "100" => 0,
        None => return None,
    };
    // In a reply to HEAD, the length is that of a body which is not sent.
    let is_to_head = has_head && length > 0 && (rest.is_empty() || rest.starts_with(b"HTTP/1."));
    let (body, rest) = rest.split_at_checked(if is_to_head { 0 } else { length })?;
    Some((reply.body(body).ok()?, rest))
}
