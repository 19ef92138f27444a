//! Fuzzing of API keys, compared with an independent implementation of their format.

use enrich_lib::key::ApiKey;
use enrich_lib::wire;
use http::{HeaderMap, HeaderValue};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Uses `data` as a key, as a header, and as the randomness of a new key.
pub fn key(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        check_text(text);
    }
    check_header(data);
    check_generated(data);
}

fn check_text(text: &str) {
    let key = ApiKey::parse(text);
    assert_eq!(key.is_some(), is_key(text), "{text:?}");
    if let Some(key) = key {
        assert_eq!(key.reveal(), text);
        assert_eq!(format!("{key:?} {:?}", key.digest()), "ApiKey(…) KeyDigest(…)");
        assert_eq!(key.masked(), format!("{}…", &text[..8]));
    }
}

/// Returns whether `text` is `enr_`, 32 base62 characters, and 6 more that encode the CRC-32 of everything
/// before them.
fn is_key(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("enr_") else { return false };
    let is_base62 = rest.bytes().all(|byte| BASE62.contains(&byte));
    is_base62 && rest.len() == 38 && text[36..] == in_base62(crc32(&text.as_bytes()[..36]))
}

/// Computes the ISO-HDLC CRC-32, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1)))
    })
}

fn in_base62(number: u32) -> String {
    let digit = |place: u32| BASE62[(u64::from(number) / 62_u64.pow(place) % 62) as usize];
    (0..6).rev().map(|place| char::from(digit(place))).collect()
}

/// Checks `Authorization`: the scheme in any case, spaces before the token, nothing after it.
fn check_header(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
    let found = wire::request(&headers, Ok(Default::default())).key;

    let text = String::from_utf8_lossy(data);
    let token = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("Bearer "));
    let token = token.map(|_| text[7..].trim_start_matches(' ')).filter(|token| is_key(token));
    assert_eq!(found, token.and_then(ApiKey::parse).map(|key| key.digest()), "{text:?}");
}

/// Checks that a generated key is valid, and that it is invalid with any single character replaced.
fn check_generated(data: &[u8]) {
    // The generator rejects bytes from 248 on. After the end of `data`, zeros guarantee that it terminates.
    let mut bytes = data.iter().copied();
    let text = ApiKey::generate(|| bytes.next().unwrap_or(0)).reveal().to_owned();
    assert!(is_key(&text), "{text}");

    let byte = |at: usize| usize::from(data.get(at).copied().unwrap_or(0));
    let (at, wrong) = (byte(0) % text.len(), char::from(BASE62[byte(1) % BASE62.len()]));
    let mut other = text.clone();
    other.replace_range(at..=at, wrong.encode_utf8(&mut [0; 4]));
    assert_eq!(ApiKey::parse(&other).is_some(), other == text, "{other}");
}
