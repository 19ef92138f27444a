//! Receipts: what a spend leaves behind so that the same request is not paid twice.
//!
//! A request with an [`IdempotencyKey`] has a [`Receipt`], a keyed hash of its workspace, key and address. The
//! store keeps the receipt of the lookup that paid, for [`RECEIPT_TTL`]. Each repetition runs and costs nothing.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::email::Email;
use crate::model::WorkspaceId;

/// How long a store keeps a receipt, by its own clock: the 24 hours of the promise, and longer than a lookup
/// that began before their end.
pub const RECEIPT_TTL: Duration = Duration::from_secs(24 * 60 * 60 + 60);

/// The key that a client chooses for a request and its repetitions: the value of the header `Idempotency-Key`
/// (draft-ietf-httpapi-idempotency-key-header-07).
///
/// It may contain personal data: this type has no `Display`, and its `Debug` redacts it.
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyKey(Box<[u8]>);

impl IdempotencyKey {
    /// The maximum length of a key, in octets.
    pub const OCTETS_MAX: usize = 255;

    /// Parses the value of the header: a quoted string (RFC 8941, 3.3.3), or the same key without quotes.
    /// Returns `None` unless the key consists of 1 to [`Self::OCTETS_MAX`] visible ASCII characters.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let key = match value.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted.strip_suffix(b"\"")?)?,
            None => value.to_owned(),
        };
        let is_valid = (1..=Self::OCTETS_MAX).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
        is_valid.then(|| Self(key.into()))
    }
}

/// Removes the escapes from the text between two quotes. Returns `None` if an escape is invalid, or if the
/// string ends earlier.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.iter().copied();
    let mut key = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'"' => return None,
            b'\\' => bytes.next().filter(|escaped| matches!(escaped, b'"' | b'\\'))?,
            byte => byte,
        });
    }
    Some(key)
}

/// Identifies the requests of which at most one pays: those of a workspace with the same idempotency key and
/// the same address, in upper or lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt([u8; 16]);

impl Receipt {
    /// Returns the 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Creates a receipt from the bytes that [`Receipt::as_bytes`] returned.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The key under which receipts are hashed. All nodes that share a store need the same one, for as long as its
/// receipts are kept.
#[derive(Clone)]
pub struct ReceiptKey(Hmac<Sha256>);

impl ReceiptKey {
    /// Creates a key. `key` must be 16 cryptographically secure random bytes.
    pub fn new(key: [u8; 16]) -> Self {
        let mut padded = [0; 64];
        padded[..16].copy_from_slice(&key);
        let mut mac = Hmac::new(&padded.into());
        mac.update(b"enrich receipt\0");
        Self(mac)
    }

    /// Returns the receipt of a request: the first half of an HMAC-SHA-256.
    pub fn receipt(&self, workspace: &WorkspaceId, key: &IdempotencyKey, email: &Email) -> Receipt {
        let mut mac = self.0.clone();
        let address = email.to_lower_case();
        for part in [workspace.as_str().as_bytes(), &key.0, address.as_bytes()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mut receipt = [0; 16];
        receipt.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        Receipt(receipt)
    }
}

redacted_debug!(IdempotencyKey, Receipt, ReceiptKey);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(value: impl AsRef<[u8]>) -> Option<IdempotencyKey> {
        IdempotencyKey::parse(value.as_ref())
    }

    #[test]
    fn rejects_malformed_keys() {
        let long = "k".repeat(IdempotencyKey::OCTETS_MAX);
        assert!(parse(&long).is_some() && parse(format!("\"{long}\"")).is_some());
        let too_long = [format!("{long}k"), format!("\"{long}k\"")];
        let malformed =
            ["", "\"", "\"\"", "\"a", "\"a\"b\"", "\"a\\\"", "\"\\a\"", "\"a\";b", "\"a\", \"b\""];
        let invisible = ["a b", "\"a b\"", "a\t", "\u{7f}", "é", "\"\0\""];
        for value in too_long.iter().map(String::as_str).chain(malformed).chain(invisible) {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }

    /// The expected bytes were calculated with Python's `hmac`.
    #[test]
    fn receipt_is_an_hmac_of_workspace_key_and_lower_case_address() {
        let receipt = |key: u8, workspace: &str, idempotency: &str, email: &str| {
            let email = Email::parse(email).unwrap();
            let workspace = workspace.parse().unwrap();
            ReceiptKey::new([key; 16]).receipt(&workspace, &parse(idempotency).unwrap(), &email)
        };
        let ada = receipt(7, "demo", "order-1", "ada@gmail.com");
        assert_eq!(
            format!("{:032x}", u128::from_be_bytes(*ada.as_bytes())),
            "8eb0db0855028dddf1b74e130143de68"
        );
        assert_eq!(receipt(7, "demo", "\"order-1\"", "Ada@GMail.com"), ada);
        for other in [
            receipt(8, "demo", "order-1", "ada@gmail.com"),
            receipt(7, "demo1", "order-1", "ada@gmail.com"),
            receipt(7, "demo", "order-2", "ada@gmail.com"),
            receipt(7, "demo", "order-1", "a.da@gmail.com"),
            receipt(7, "demoo", "rder-1", "ada@gmail.com"),
            receipt(7, "demo", "order-1a", "da@gmail.com"),
        ] {
            assert_ne!(other, ada);
        }
    }

    #[test]
    fn debug_output_hides_keys_and_receipts() {
        let text = format!("{:?} {:?} {:?}", parse("k"), ReceiptKey::new([7; 16]), Receipt([7; 16]));
        assert_eq!(text, "Some(IdempotencyKey(…)) ReceiptKey(…) Receipt(…)");
    }

    proptest! {
        #[test]
        fn quoted_and_bare_key_are_the_same(key in "[!-~]{1,255}") {
            let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assume!(!key.starts_with('"'));
            prop_assert_eq!(parse(quoted), parse(&key));
            prop_assert_eq!(parse(&key), Some(IdempotencyKey(key.as_bytes().into())));
        }

        #[test]
        fn parses_any_bytes_without_panic(value: Vec<u8>) {
            if let Some(key) = parse(&value) {
                prop_assert!(key.0.iter().all(u8::is_ascii_graphic));
            }
        }
    }
}
