//! API keys (specification 5): their format, checksum and digest.
//!
//! A key is `enr_`, 32 random base62 characters (190 bits), and the CRC-32 of all before it as 6 base62
//! characters. Secret scanners recognise it, and a mistyped key is refused before any store is asked.
//! Stores know a key by its digest alone; the plaintext is shown once, when it is made.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

const PREFIX: &str = "enr_";
const RANDOM_CHARS: usize = 32;
const CHECKSUM_CHARS: usize = 6;
const KEY_CHARS: usize = PREFIX.len() + RANDOM_CHARS + CHECKSUM_CHARS;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The plaintext of an API key. `Debug` hides it; only [`ApiKey::reveal`] shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A new key, drawn from `random_byte`: a cryptographically strong source of uniform bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut key = String::with_capacity(KEY_CHARS);
        key.push_str(PREFIX);
        while key.len() < PREFIX.len() + RANDOM_CHARS {
            // Bytes from 248 up are drawn again: 248 is the largest multiple of 62, so no character is favoured.
            let byte = usize::from(random_byte());
            if byte < 248 {
                key.push(char::from(BASE62[byte % 62]));
            }
        }
        let checksum = checksum(key.as_bytes());
        key.extend(checksum.map(char::from));
        Self(key)
    }

    /// The key that `text` is, if its format and checksum are right.
    pub fn parse(text: &str) -> Option<Self> {
        is_key(text.as_bytes()).then(|| Self(text.to_owned()))
    }

    /// What a store knows the key by.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of_text(self.0.as_bytes())
    }

    /// The plaintext: to be shown to its owner once (specification 5.4), and never to be logged.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Enough of the key to tell it from others in a list, too little to use it: `enr_Ab12…`.
    pub fn masked(&self) -> String {
        format!("{}…", &self.0[..PREFIX.len() + 4])
    }
}

fn is_key(text: &[u8]) -> bool {
    let Some((key, sum)) = text.split_last_chunk::<CHECKSUM_CHARS>() else { return false };
    let Some(random) = key.strip_prefix(PREFIX.as_bytes()) else { return false };
    let Ok(random) = <&[u8; RANDOM_CHARS]>::try_from(random) else { return false };
    // All are looked at, with no end before: so the compiler looks at many at a time.
    random.iter().fold(true, |all, char| all & char.is_ascii_alphanumeric()) && *sum == checksum(key)
}

fn checksum(key: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let mut crc = crc32fast::hash(key);
    let mut chars = [b'0'; CHECKSUM_CHARS];
    for char in chars.iter_mut().rev() {
        *char = BASE62[(crc % 62) as usize];
        crc /= 62;
    }
    chars
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The SHA-256 of an API key: keys have 190 random bits, so a plain hash can't be turned back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of the key that `text` is, if its format and checksum are right. The plaintext is not copied.
    pub fn of_key(text: &[u8]) -> Option<Self> {
        is_key(text).then(|| Self::of_text(text))
    }

    fn of_text(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// The 32 bytes, for a store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's public id, by which operators name it: `key_` and the first 8 hex digits of the digest.
    pub fn key_id(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        format!("key_{:08x}", u32::from_be_bytes([a, b, c, d]))
    }
}

/// A digest is a hash already: its first bytes are enough.
impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(seed: u64) -> ApiKey {
        let mut state = seed;
        ApiKey::generate(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
    }

    #[test]
    fn a_key_has_the_format_that_secret_scanners_look_for() {
        let key = key(1);
        insta::assert_snapshot!(key.reveal(), @"enr_k6faH4HGSo4DEJ05kMZqZGZbFQEyfAdK41tVZc");
        assert_eq!(key.masked(), "enr_k6fa…");
    }

    #[test]
    fn a_key_is_named_by_the_first_bytes_of_its_digest() {
        let mut bytes = [0xff; 32];
        bytes[..4].copy_from_slice(&[0x00, 0xab, 0x01, 0xcd]);
        assert_eq!(KeyDigest::from_bytes(bytes).key_id(), "key_00ab01cd");
    }

    #[test]
    fn a_key_and_its_digest_hide_in_debug_output() {
        assert_eq!(format!("{:?} {:?}", key(1), key(1).digest()), "ApiKey(…) KeyDigest(…)");
    }

    #[test]
    fn bytes_that_would_favour_a_character_are_drawn_again() {
        let mut bytes = (0..=255).rev().cycle();
        let key = ApiKey::generate(|| bytes.next().unwrap());
        assert!(key.reveal().starts_with("enr_zyxwv"), "247 is the first byte taken: {}", key.reveal());
    }

    proptest! {
        #[test]
        fn every_generated_key_parses_back(seed: u64) {
            let key = key(seed);
            prop_assert_eq!(ApiKey::parse(key.reveal()), Some(key));
        }

        #[test]
        fn a_key_with_one_character_wrong_is_refused(seed: u64, at in 0..KEY_CHARS, to in "[ -~]") {
            let good = key(seed);
            let mut text = good.reveal().to_owned();
            text.replace_range(at..=at, &to);
            prop_assume!(text != good.reveal());
            prop_assert_eq!(ApiKey::parse(&text), None);
        }

        #[test]
        fn no_other_text_is_a_key(text in ".*") {
            prop_assert_eq!(ApiKey::parse(&text), None);
        }
    }
}
