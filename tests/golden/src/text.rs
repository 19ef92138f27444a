//! The text format of transcripts, with escapes for bytes and placeholders for values that vary.

use std::collections::BTreeSet;

use enrich_lib::model::ProfileUrl;

/// Decodes `text`: `\r`, `\n`, `\t`, `\\` and `\xHH` are one byte each, and `{"…"*N}` repeats the quoted text
/// N times.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '{']) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let (taken, after) = match &rest[at..] {
            repeat if repeat.starts_with("{\"") => match repeated(repeat)? {
                Some(taken) => taken,
                None => (b"{".to_vec(), &repeat[1..]),
            },
            brace if brace.starts_with('{') => (b"{".to_vec(), &brace[1..]),
            escape => escaped(escape)?,
        };
        bytes.extend(taken);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Decodes a leading `{"…"*N}` and returns the bytes and the remaining text. Returns `None` for an ordinary
/// brace, as in JSON.
fn repeated(text: &str) -> Result<Option<(Vec<u8>, &str)>, String> {
    let Some((part, after)) = text[2..].split_once("\"*") else { return Ok(None) };
    if part.contains('"') {
        return Ok(None);
    }
    let Some((count, after)) = after.split_once('}') else { return Ok(None) };
    let count: usize = count.parse().map_err(|_| format!("{count:?} is not a number of repetitions"))?;
    Ok(Some((bytes(part)?.repeat(count), after)))
}

fn escaped(text: &str) -> Result<(Vec<u8>, &str), String> {
    let unknown = || format!("{:?} is no escape", text.chars().take(4).collect::<String>());
    let byte = match text.as_bytes().get(1) {
        Some(b'r') => b'\r',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'\\') => b'\\',
        Some(b'x') => {
            let byte = text.get(2..4).and_then(|hex| u8::from_str_radix(hex, 16).ok()).ok_or_else(unknown)?;
            return Ok((vec![byte], &text[4..]));
        }
        _ => return Err(unknown()),
    };
    Ok((vec![byte], &text[2..]))
}

/// The values seen in the replies of a run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    lookup_ids: BTreeSet<Vec<u8>>,
}

/// Returns whether `actual` matches `expected`, with placeholders for values that vary.
///
/// `{date}` matches a date in the form of RFC 9110, section 5.6.7. `{lookup_id}` matches `lookup_` and a
/// UUIDv7, which is the same everywhere in one reply and in no earlier reply. `{paid_by}` matches the id of an
/// earlier reply. `{seconds}` matches a number of seconds within the window, which is the same everywhere in one
/// reply. `{number}` matches an integer, and `{profile}` the URL of a profile.
pub(crate) fn is(mut expected: &[u8], mut actual: &[u8], seen: &mut Seen) -> bool {
    let (mut seconds_before, mut id_before) = (None, None);
    while !expected.is_empty() {
        let taken = if let Some(after) = expected.strip_prefix(b"{date}") {
            expected = after;
            date_bytes(actual)
        } else if let Some(after) = expected.strip_prefix(b"{lookup_id}") {
            expected = after;
            lookup_id_bytes(actual).filter(|bytes| {
                let id = &actual[..*bytes];
                match id_before.replace(id) {
                    Some(before) => before == id,
                    None => seen.lookup_ids.insert(id.to_vec()),
                }
            })
        } else if let Some(after) = expected.strip_prefix(b"{paid_by}") {
            expected = after;
            lookup_id_bytes(actual).filter(|bytes| {
                let id = &actual[..*bytes];
                id_before != Some(id) && seen.lookup_ids.contains(id)
            })
        } else if let Some(after) = expected.strip_prefix(b"{seconds}") {
            expected = after;
            let digits = actual.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let seconds = &actual[..digits];
            let same = *seconds_before.get_or_insert(seconds) == seconds;
            (same && is_within_a_day(seconds)).then_some(digits)
        } else if let Some(after) = expected.strip_prefix(b"{number}") {
            expected = after;
            Some(actual.iter().take_while(|byte| byte.is_ascii_digit()).count()).filter(|digits| *digits > 0)
        } else if let Some(after) = expected.strip_prefix(b"{profile}") {
            expected = after;
            let bytes = actual.iter().take_while(|byte| **byte != b'"').count();
            let url = std::str::from_utf8(&actual[..bytes]).unwrap_or_default();
            ProfileUrl::parse(url).is_ok_and(|profile| profile.as_str() == url).then_some(bytes)
        } else {
            let same = expected.first() == actual.first();
            expected = &expected[1..];
            same.then_some(1)
        };
        match taken {
            Some(bytes) => actual = &actual[bytes..],
            None => return false,
        }
    }
    actual.is_empty()
}

/// Returns the length of a leading date such as `Sat, 21 Nov 2026 03:54:38 GMT`.
fn date_bytes(text: &[u8]) -> Option<usize> {
    const FORM: &[u8] = b"Aaa, 00 Aaa 0000 00:00:00 GMT";
    let fits = |(form, byte): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'A' => byte.is_ascii_uppercase(),
        b'a' => byte.is_ascii_lowercase(),
        _ => form == byte,
    };
    (text.len() >= FORM.len() && FORM.iter().zip(text).all(fits)).then_some(FORM.len())
}

fn lookup_id_bytes(text: &[u8]) -> Option<usize> {
    const BYTES: usize = b"lookup_".len() + 32;
    let hex = text.get(..BYTES)?.strip_prefix(b"lookup_")?;
    let is_uuid_v7 = hex[12] == b'7' && matches!(hex[16], b'8' | b'9' | b'a' | b'b');
    (is_uuid_v7 && hex.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))).then_some(BYTES)
}

fn is_within_a_day(seconds: &[u8]) -> bool {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse().ok());
    seconds.is_some_and(|seconds: u32| (1..=86_400).contains(&seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_match_their_format() {
        let is =
            |expected: &str, actual: &str| is(expected.as_bytes(), actual.as_bytes(), &mut Seen::default());
        let id = "lookup_01a1fc3deb41791784f7eeb00ad60d16";
        assert!(is("{date}.", "Sat, 21 Nov 2026 03:54:38 GMT."));
        assert!(is("<{lookup_id}>", &format!("<{id}>")));
        assert!(is("{lookup_id} {lookup_id}", &format!("{id} {id}")));
        assert!(!is("{lookup_id} {lookup_id}", &format!("{id} {}1", &id[..id.len() - 1])));
        assert!(is("{seconds} {seconds}", "35 35"));
        assert!(is("{number}.", "0."));
        assert!(is("{profile}\"", "https://www.linkedin.com/in/ada-marlowe\""));
        for (expected, actual) in [
            ("{date}", "Sat, 21 Nov 2026 03:54:38 CET"),
            ("{date}", "Sat, 21 Nov"),
            ("{lookup_id}", "lookup_01a1fc3deb41491784f7eeb00ad60d16"),
            ("{lookup_id}", "lookup_01A1FC3DEB41791784F7EEB00AD60D16"),
            ("{seconds}", "0"),
            ("{seconds}", "86401"),
            ("{seconds}", "1.5"),
            ("{seconds} {seconds}", "35 36"),
            ("{number}", ""),
            ("{number}", "-1"),
            ("{profile}\"", "http://www.linkedin.com/in/ada\""),
            ("{profile}\"", "https://www.linkedin.com/company/ada\""),
            ("a", "b"),
            ("a", ""),
            ("", "a"),
        ] {
            assert!(!is(expected, actual), "{expected}: {actual}");
        }
    }

    #[test]
    fn rejects_a_repeated_lookup_id() {
        let (mut seen, id) = (Seen::default(), b"lookup_01a1fc3deb41791784f7eeb00ad60d16");
        assert!(is(b"{lookup_id}", id, &mut seen));
        assert!(!is(b"{lookup_id}", id, &mut seen));
    }
}
