//! Cookies.

use std::time::Duration;

use http::header::{COOKIE, HeaderName, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

/// Returns the header that sets a cookie. A name with the prefix `__Host-` makes browsers require these
/// attributes (RFC 6265bis, 4.1.3.2).
pub(crate) fn set_cookie(name: &str, value: &str, age_max: Duration) -> (HeaderName, HeaderValue) {
    let age = age_max.as_secs();
    let cookie = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={age}");
    (SET_COOKIE, HeaderValue::try_from(cookie).expect("the value is ASCII"))
}

/// Returns the value of a cookie. Cookies of other applications on the same host may have any bytes.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        pair.trim_ascii().strip_prefix(name.as_bytes()).and_then(|v| v.strip_prefix(b"="))
    });
    str::from_utf8(values.next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_cookie_beside_any_others() {
        for (header, value) in [
            (&b"id=1"[..], Some("1")),
            (b"other=\xe4\xff; id=1", Some("1")),
            (b"id=1; other=\xe4", Some("1")),
            (b"\xe4;\tid=1\t;x", Some("1")),
            (b"other; id=; id=2", Some("")),
            (b"id=a=b", Some("a=b")),
            (b"\xc2\xa0id=1", None),
            (b"xid=1; id2=1; id", None),
            (b"id=\xe4", None),
            (b"", None),
        ] {
            let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_bytes(header).unwrap())]);
            assert_eq!(cookie(&headers, "id"), value, "{header:?}");
        }
        let mut headers = HeaderMap::new();
        for line in ["a=1", "id=2"] {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        assert_eq!(cookie(&headers, "id"), Some("2"));
    }
}
