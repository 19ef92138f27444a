//! Passwords: the rules for new ones, hashing and verification.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::throttle::Attempt;

/// The maximum number of hashes that are computed at a time. Each takes 19 MiB and about 30 ms of a core.
const CONCURRENT_MAX: usize = 2;

static PERMITS: Semaphore = Semaphore::const_new(CONCURRENT_MAX);

/// The hash to verify against when there is no user, so that the time of a sign-in does not show whether the user exists.
static NO_USER: LazyLock<String> = LazyLock::new(|| hash_now(&format!("{:032x}", rand::random::<u128>())));

/// The reason why a new password is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum PasswordError {
    #[error("Use at least 8 characters.")]
    Short,
    #[error("Use at most 128 characters.")]
    Long,
    #[error("This password is easy to guess. Use several unrelated words, or a password manager.")]
    Common,
    #[error("The two passwords differ.")]
    Differ,
}

/// Checks a new password, entered twice. It must not be derived from `email` (ASVS 5.0, 6.2).
pub(crate) fn check(password: &str, again: &str, email: &str) -> Result<(), PasswordError> {
    match password.chars().count() {
        ..8 => Err(PasswordError::Short),
        129.. => Err(PasswordError::Long),
        _ if is_guessable(password, email) => Err(PasswordError::Common),
        _ if password != again => Err(PasswordError::Differ),
        _ => Ok(()),
    }
}

/// Returns whether an attacker who knows the email would try the password early: a frequent password or a part of the email,
/// also with digits or signs after it, or a few characters that repeat.
fn is_guessable(password: &str, email: &str) -> bool {
    let password = password.to_lowercase();
    let stem = password.trim_end_matches(|c: char| !c.is_alphabetic());
    let is_common = |text: &str| COMMON.binary_search(&text).is_ok();
    let characters: BTreeSet<char> = password.chars().collect();
    is_common(&password)
        || is_common(stem)
        || email.contains(&password)
        || (stem.len() > 3 && email.contains(stem))
        || characters.len() < 5
}

/// The most frequent passwords, sorted.
static COMMON: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let lines = include_str!("../assets/common_passwords.txt").lines();
    lines.filter(|line| !line.starts_with("# ") && *line != "#").collect()
});

/// Returns the argon2id hash of a password, in the PHC string format.
pub(crate) async fn hash(password: String) -> String {
    blocking(move || hash_now(&password)).await
}

/// Returns whether `password` has this hash. Without a hash, takes as long and returns `false`.
pub(crate) async fn verify(_: &Attempt, password: String, hash: Option<String>) -> bool {
    blocking(move || {
        let expected = hash.as_deref().unwrap_or(&NO_USER);
        let parsed = PasswordHash::new(expected);
        let is_same = parsed
            .is_ok_and(|parsed| Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok());
        is_same && hash.is_some()
    })
    .await
}

fn hash_now(password: &str) -> String {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.expect("the parameters are valid").to_string()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let _permit = PERMITS.acquire().await;
    tokio::task::spawn_blocking(work).await.expect("hashing does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_short_long_common_and_different_passwords() {
        let check = |password: &str| check(password, password, "ada.lovelace@example.com");
        assert_eq!(check("kT9!x"), Err(PasswordError::Short));
        assert_eq!(check(&"kT9!x pq".repeat(17)), Err(PasswordError::Long));
        for common in
            ["password", "12345678", "qwertyuiop", "iloveyou1", "ada.lovelace", "Password1", "letmein123"]
        {
            assert_eq!(check(common), Err(PasswordError::Common), "{common}");
        }
        assert_eq!(check("harbour violet spoon"), Ok(()));
        assert_eq!(super::check("harbour violet spoon", "x", "a@example.com"), Err(PasswordError::Differ));
    }

    #[test]
    fn common_passwords_are_sorted() {
        assert_eq!(COMMON.len(), 10_000);
        assert!(COMMON.is_sorted());
    }

    #[tokio::test]
    async fn verifies_the_hashed_password_only() {
        let (hash, attempt) = (hash("harbour violet spoon".to_owned()).await, Attempt::uncounted());
        assert!(hash.starts_with("$argon2id$"));
        assert!(verify(&attempt, "harbour violet spoon".to_owned(), Some(hash.clone())).await);
        assert!(!verify(&attempt, "harbour violet spoo".to_owned(), Some(hash)).await);
        assert!(!verify(&attempt, "harbour violet spoon".to_owned(), None).await);
    }
}
