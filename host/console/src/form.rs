//! Forms that can be submitted once.
//!
//! The form that creates an API key contains a random number, and the key is computed from this number and
//! the session's token. If the browser sends the form again, the key exists already. No state is stored, and
//! only the session's browser can compute the key.

use enrich_lib::key::ApiKey;
use hmac::{Hmac, KeyInit, Mac};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sha2::Sha256;

use crate::random::Token;

/// The random number of a form, and its authentication code under the session's token.
pub(crate) struct FormToken(String);

impl FormToken {
    /// Creates the token of a new form.
    pub(crate) fn new(session: &Token) -> Self {
        let number = Token::generate();
        Self(format!("{}{}", number.reveal(), hex::encode(mac(session, "form", number.reveal()))))
    }

    /// Returns the value for the hidden field of the form.
    pub(crate) fn field(&self) -> &str {
        &self.0
    }

    /// Returns the key of a submitted form, which is the same each time. Returns `None` unless this session
    /// received the form.
    pub(crate) fn key(session: &Token, field: &str) -> Option<ApiKey> {
        let (number, code) = field.split_at_checked(field.len() / 2)?;
        let number = Token::parse(number)?;
        hmac(session, "form", number.reveal()).verify_slice(&hex::decode(code).ok()?).ok()?;
        let mut random = StdRng::from_seed(mac(session, "key", number.reveal()));
        Some(ApiKey::generate(|| random.random()))
    }
}

fn mac(session: &Token, purpose: &str, number: &str) -> [u8; 32] {
    hmac(session, purpose, number).finalize().into_bytes().into()
}

fn hmac(session: &Token, purpose: &str, number: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(session.reveal().as_bytes());
    mac.expect("HMAC takes a key of any length").chain_update(purpose).chain_update(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_form_is_the_same_each_time_and_known_only_to_its_session() {
        let (session, other) = (Token::generate(), Token::generate());
        let form = FormToken::new(&session);
        let key = FormToken::key(&session, form.field()).unwrap();
        assert_eq!(FormToken::key(&session, form.field()), Some(key.clone()));
        assert_ne!(FormToken::key(&session, FormToken::new(&session).field()), Some(key));
        assert_eq!(FormToken::key(&other, form.field()), None);
        for invalid in ["", "ä", &"0".repeat(128), &form.field()[1..], &form.field()[..64]] {
            assert_eq!(FormToken::key(&session, invalid), None, "{invalid}");
        }
    }
}
