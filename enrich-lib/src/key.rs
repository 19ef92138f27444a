//! API keys (specification 5): format, checksum and digest.
//!
//! A key consists of `enr_`, 32 random base62 characters (190 bits) and a checksum: the CRC-32 of the
//! preceding characters as 6 base62 characters. A test key begins with `enr_test_`, which replaces the first 5
//! random characters. Secret scanners recognise the format, and the checksum
//! rejects a mistyped key before any store is accessed. Stores hold only the digest of a key. The plaintext
//! is shown once, when the key is created.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

const PREFIX: &str = "enr_";
const TEST: &str = "test_";
const RANDOM_CHARS: usize = 32;
const CHECKSUM_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The plaintext of an API key. `Debug` redacts it; only [`ApiKey::reveal`] returns it.
#[must_use = "only this value has the plaintext of the key"]
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Generates a key from `random_byte`, which must be a cryptographically secure source of uniform bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut key = PREFIX.to_owned();
        while key.len() < PREFIX.len() + RANDOM_CHARS {
            // Rejects bytes from 248, the largest multiple of 62, to avoid modulo bias.
            let byte = usize::from(random_byte());
            if byte < 248 {
                key.push(char::from(BASE62[byte % 62]));
            }
        }
        Self::with_checksum(key)
    }

    fn with_checksum(mut key: String) -> Self {
        let checksum = checksum(key.as_bytes());
        key.extend(checksum.map(char::from));
        Self(key)
    }

    /// Converts a new key to a test key.
    pub fn into_test(self) -> Self {
        let Self(mut key) = self;
        key.truncate(PREFIX.len() + RANDOM_CHARS);
        key.replace_range(PREFIX.len()..PREFIX.len() + TEST.len(), TEST);
        Self::with_checksum(key)
    }

    /// Returns whether a key, or its [abbreviation](Self::masked), is that of a test key.
    pub fn is_test(text: &str) -> bool {
        text.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(TEST))
    }

    /// Parses a key. Returns `None` if the format or the checksum is wrong.
    pub fn parse(text: &str) -> Option<Self> {
        is_key(text.as_bytes()).then(|| Self(text.to_owned()))
    }

    /// Returns the digest under which stores keep the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::from_token(self.0.as_bytes())
    }

    /// Returns the plaintext. Show it to the key's owner once (specification 5.4) and never log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns an abbreviation for lists, such as `enr_Ab12…` or `enr_test_Ab12…`, which cannot be used as a key.
    pub fn masked(&self) -> String {
        let test = if Self::is_test(&self.0) { TEST.len() } else { 0 };
        format!("{}…", &self.0[..PREFIX.len() + test + 4])
    }
}

fn is_key(text: &[u8]) -> bool {
    let Some((key, sum)) = text.split_last_chunk::<CHECKSUM_CHARS>() else { return false };
    let Some(random) = key.strip_prefix(PREFIX.as_bytes()) else { return false };
    let Ok(random) = <&[u8; RANDOM_CHARS]>::try_from(random) else { return false };
    let random = random.strip_prefix(TEST.as_bytes()).unwrap_or(random);
    // Checks every byte without early exit so that the loop vectorizes.
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

redacted_debug!(ApiKey, KeyDigest);

/// A format of API keys. [`EnrichKeys`] is that of this library; a gateway with keys of its own implements it
/// for them.
///
/// The format is checked before any store is accessed, so that a malformed key costs nothing. It need not
/// decide whether a key exists: [`Keys`](crate::ports::Keys) finds the workspace of the digest.
///
/// ```
/// use enrich_lib::key::{KeyDigest, KeyFormat};
///
/// /// Keys such as `sk_live_51H8…`.
/// struct LiveKeys;
///
/// impl KeyFormat for LiveKeys {
///     fn digest(&self, token: &[u8]) -> Option<KeyDigest> {
///         token.starts_with(b"sk_live_").then(|| KeyDigest::from_token(token))
///     }
/// }
///
/// assert!(LiveKeys.digest(b"sk_live_123").is_some());
/// assert!(LiveKeys.digest(b"sk_test_123").is_none());
/// ```
pub trait KeyFormat: Send + Sync {
    /// Returns the digest of the key in `token`, the text after `Bearer` in the header `Authorization`.
    /// Returns `None` if it is malformed, which results in the same 401 as an unknown key.
    fn digest(&self, token: &[u8]) -> Option<KeyDigest>;
}

/// The keys that [`ApiKey::generate`] creates.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnrichKeys;

impl KeyFormat for EnrichKeys {
    fn digest(&self, token: &[u8]) -> Option<KeyDigest> {
        KeyDigest::from_key(token)
    }
}

/// The SHA-256 of an API key. A plain hash is sufficient because keys have at least 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Returns the digest of the key in `text`, or `None` if its format or checksum is wrong. Does not copy
    /// the plaintext.
    pub fn from_key(text: &[u8]) -> Option<Self> {
        is_key(text).then(|| Self::from_token(text))
    }

    /// Returns the digest of a key of any format. The key needs at least 128 random bits, because the hash is
    /// a fast one.
    pub fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Returns a digest with this id, of no key. It stands for the key of a request that the gateway has
    /// authenticated itself.
    pub(crate) const fn from_id(id: KeyId) -> Self {
        let mut bytes = [0; 32];
        let [a, b, c, d] = id.0.to_be_bytes();
        [bytes[0], bytes[1], bytes[2], bytes[3]] = [a, b, c, d];
        Self(bytes)
    }

    /// Returns the 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Creates a digest from the bytes that a store returned.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the key's public id: the first 4 bytes of the digest.
    pub const fn key_id(&self) -> KeyId {
        let [a, b, c, d, ..] = self.0;
        KeyId(u32::from_be_bytes([a, b, c, d]))
    }
}

/// Hashes only the first 8 bytes, because a digest is uniformly distributed.
impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// The public id of an API key, formatted as `key_` and 8 hex digits. It cannot be used as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

impl KeyId {
    const PREFIX: &str = "key_";

    /// Creates an id from the number that [`KeyId::number`] returned.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the id as a number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:08x}", Self::PREFIX, self.0)
    }
}

/// The reason why a text is not a [`KeyId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected the id of a key, such as key_0123abcd")]
pub struct KeyIdError;

impl FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(Self::PREFIX).filter(|digits| digits.len() == 8);
        let digits = digits.filter(|digits| digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        number.map(Self).ok_or(KeyIdError)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use proptest::prelude::*;
    use rustc_hash::FxBuildHasher;

    use super::*;

    fn key(seed: u64) -> ApiKey {
        let mut state = seed;
        ApiKey::generate(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
    }

    fn live_or_test_key(seed: u64, is_test: bool) -> ApiKey {
        if is_test { key(seed).into_test() } else { key(seed) }
    }

    #[test]
    fn key_has_the_documented_format() {
        let key = key(1);
        insta::assert_snapshot!(key.reveal(), @"enr_k6faH4HGSo4DEJ05kMZqZGZbFQEyfAdK41tVZc");
        assert_eq!(key.masked(), "enr_k6fa…");
        let test = key.into_test();
        insta::assert_snapshot!(test.reveal(), @"enr_test_4HGSo4DEJ05kMZqZGZbFQEyfAdK2CmlxU");
        assert_eq!((test.masked(), ApiKey::is_test(test.reveal())), ("enr_test_4HGS…".to_owned(), true));
        assert_eq!(ApiKey::parse(test.reveal()), Some(test));
    }

    #[test]
    fn key_id_is_a_prefix_of_its_digest() {
        let mut bytes = [0xff; 32];
        bytes[..4].copy_from_slice(&[0x00, 0xab, 0x01, 0xcd]);
        let id = KeyDigest::from_bytes(bytes).key_id();
        assert_eq!(id.to_string(), "key_00ab01cd");
        assert_eq!("key_00ab01cd".parse(), Ok(id));
        assert_eq!((id.number(), KeyId::from_number(0x00ab_01cd)), (0x00ab_01cd, id));
    }

    #[test]
    fn rejects_malformed_key_ids() {
        for text in
            ["", "key_", "key_0", "key_00ab01cD", "key_+0ab01cd", "key_00ab01cd0", "00ab01cd", "KEY_00ab01cd"]
        {
            assert_eq!(text.parse::<KeyId>(), Err(KeyIdError), "{text}");
        }
    }

    #[test]
    fn rejects_symbols_despite_valid_checksum() {
        for symbols in ["-", "--", "_.", "+/="] {
            let text = format!("{PREFIX}{}{symbols}", "a".repeat(RANDOM_CHARS - symbols.len()));
            let checksum = checksum(text.as_bytes()).map(char::from);
            assert_eq!(ApiKey::parse(&(text + &String::from_iter(checksum))), None, "{symbols}");
        }
    }

    #[test]
    fn different_digests_have_different_hashes() {
        let hash = |seed| FxBuildHasher.hash_one(key(seed).digest());
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    #[test]
    fn debug_output_hides_key_and_digest() {
        assert_eq!(format!("{:?} {:?}", key(1), key(1).digest()), "ApiKey(…) KeyDigest(…)");
    }

    #[test]
    fn rejects_bytes_that_would_bias_characters() {
        let mut bytes = (0..=255).rev().cycle();
        let key = ApiKey::generate(|| bytes.next().unwrap());
        assert!(key.reveal().starts_with("enr_zyxwv"), "247 is the first byte taken: {}", key.reveal());
    }

    proptest! {
        #[test]
        fn generated_keys_parse(seed: u64, is_test: bool) {
            let key = live_or_test_key(seed, is_test);
            prop_assert_eq!(ApiKey::parse(key.reveal()), Some(key));
        }

        #[test]
        fn checksum_rejects_a_changed_character(seed: u64, is_test: bool, at in 0..42_usize, to in "[ -~]") {
            let good = live_or_test_key(seed, is_test);
            let mut text = good.reveal().to_owned();
            text.replace_range(at..=at, &to);
            prop_assume!(text != good.reveal());
            prop_assert_eq!(ApiKey::parse(&text), None);
        }

        #[test]
        fn rejects_other_text(text in ".*") {
            prop_assert_eq!(ApiKey::parse(&text), None);
        }
    }
}
