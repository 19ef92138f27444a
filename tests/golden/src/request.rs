//! The requests of a transcript, for another server.

/// A text of the transcript and what replaces it.
pub(crate) type Replacement = (Vec<u8>, Vec<u8>);

/// Replaces texts in requests, and corrects their `content-length`.
///
/// Errors: the length of a body changed that has no `content-length` in the same bytes, for example in a
/// chunk.
pub(crate) fn adapted(bytes: &[u8], replacements: &[Replacement]) -> Result<Vec<u8>, &'static str> {
    let (mut out, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((head, after)) = split_head(rest) {
        let head_after = replaced(head, replacements);
        let Some(length) = content_length(head).filter(|_| !after.is_empty()) else {
            out.extend(head_after);
            rest = after;
            continue;
        };
        let (body, after) = after.split_at(length.min(after.len()));
        let body_after = padded(replaced(body, replacements), body);
        out.extend(if body_after == body { head_after } else { with_length(&head_after, body_after.len()) });
        out.extend(body_after);
        rest = after;
    }
    let tail = replaced(rest, replacements);
    if tail.len() != rest.len() {
        return Err("its email must be as long as that of the transcript");
    }
    out.extend(tail);
    Ok(out)
}

/// Splits the head of a request from the bytes after it.
fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = crate::client::head_bytes(bytes)?;
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.windows(8).any(|window| window.starts_with(b" HTTP/1.")).then(|| bytes.split_at(end))
}

fn content_length(head: &[u8]) -> Option<usize> {
    crate::client::header(head, "content-length")?.parse().ok()
}

fn with_length(head: &[u8], bytes: usize) -> Vec<u8> {
    let is_length = |line: &&[u8]| line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:");
    let lines = head.split_inclusive(|byte| *byte == b'\n').map(|line| match Some(line).filter(is_length) {
        Some(line) => [&line[..15], format!(" {bytes}\r\n").as_bytes()].concat(),
        None => line.to_vec(),
    });
    lines.collect::<Vec<_>>().concat()
}

/// Keeps the length of a body that ends in spaces, because such a body tests the limit of its size.
fn padded(mut body: Vec<u8>, before: &[u8]) -> Vec<u8> {
    while body.len() > before.len() && body.ends_with(b" ") {
        body.pop();
    }
    if before.ends_with(b" ") && body.len() < before.len() {
        body.resize(before.len(), b' ');
    }
    body
}

pub(crate) fn replaced(bytes: &[u8], replacements: &[Replacement]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        match replacements.iter().find(|(from, _)| rest.starts_with(from)) {
            Some((from, to)) => {
                out.extend(to);
                rest = &rest[from.len()..];
            }
            None => {
                out.push(*first);
                rest = &rest[1..];
            }
        }
    }
    out
}
