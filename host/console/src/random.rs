//! Secret tokens.

use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use enrich_store::users::{Link, LinkPurpose, Role, UserEmail};
use enrich_store::{Actor, TokenDigest};

/// How long an invitation or a reset link is valid.
const LINK_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A secret token with 256 random bits, as 64 hex digits: a session cookie, or the end of a one-time link.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("Token(…)")]
pub struct Token(String);

impl Token {
    const DIGITS: usize = 64;

    /// Generates a token from the system's secure random numbers.
    pub fn generate() -> Self {
        Self(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// Parses a token. Returns `None` if the format is wrong.
    pub fn parse(text: &str) -> Option<Self> {
        let is_token =
            text.len() == Self::DIGITS && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        is_token.then(|| Self(text.to_owned()))
    }

    /// Returns the digest under which stores keep the token.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::from_token(self.0.as_bytes())
    }

    /// Returns the token of an invitation that a form with this token creates. A form that is sent again has the
    /// same link; with another email or role, it has another one.
    pub fn of_invitation(&self, workspace: &WorkspaceId, email: &UserEmail, role: Role) -> Self {
        let invitation = format!("{} {workspace} {} {}", self.0, role.as_str(), email.as_str());
        Self(hex::encode(TokenDigest::from_token(invitation.as_bytes()).as_bytes()))
    }

    /// Creates the one-time link of this token. `actor` is its author.
    pub fn link(
        &self,
        workspace: WorkspaceId,
        purpose: LinkPurpose,
        email: UserEmail,
        actor: &Actor<'_>,
    ) -> Link {
        Link {
            digest: self.digest(),
            workspace,
            purpose,
            email,
            created_by: actor.name.to_owned(),
            created_at: actor.now,
            expires_at: actor.now + LINK_TTL,
        }
    }

    /// Returns the plaintext. Never log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// The number of recovery codes of a user.
const RECOVERY_CODES: usize = 10;

/// Generates recovery codes, each with 80 random bits: four groups of five hex digits.
pub(crate) fn recovery_codes() -> Vec<String> {
    let code = || {
        let digits = hex::encode(rand::random::<[u8; 10]>());
        let groups: Vec<_> = (0..4).map(|n| &digits[n * 5..n * 5 + 5]).collect();
        groups.join("-")
    };
    (0..RECOVERY_CODES).map(|_| code()).collect()
}

/// Returns the digest of a recovery code, however the user separates and capitalizes its digits.
pub(crate) fn recovery_digest(code: &str) -> TokenDigest {
    let digits: String = code.chars().filter(char::is_ascii_hexdigit).collect();
    TokenDigest::from_token(digits.to_ascii_lowercase().as_bytes())
}
