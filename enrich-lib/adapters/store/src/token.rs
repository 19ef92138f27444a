//! Secret tokens: session cookies, one-time links and recovery codes. Stores hold only their digests.

use sha2::{Digest, Sha256};

/// The digest of a secret token.
///
/// A plain hash is sufficient for tokens with at least 80 random bits. Passwords need a password hash.
#[derive(Clone, Copy, derive_more::Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[debug("TokenDigest(…)")]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of `token`.
    pub fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Creates a digest from the bytes that a store returned.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns a public id for lists: the first 8 bytes in hex. It does not reveal the token.
    pub fn id(&self) -> String {
        hex::encode(&self.0[..8])
    }
}
