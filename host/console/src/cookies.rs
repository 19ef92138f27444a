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

/// Returns the value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies =
        cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(found, _)| *found == name).map(|(_, value)| value)
}
