//! Passwords: the rules for new ones, hashing and verification.

use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use enrich_lib::model::WorkspaceId;
use enrich_store::users::UserEmail;
use thiserror::Error;
use unicode_normalization::UnicodeNormalization;
use zxcvbn::zxcvbn;

use crate::blocking::Blocking;
use crate::throttle::Attempt;

/// The hash to verify against when there is no user or password, so that the time of a sign-in does not show it.
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

/// Words of the product, which an attacker tries early.
const PRODUCT: [&str; 6] = ["enrich", "enrichment", "person", "people", "linkedin", "lookup"];

/// Checks a new password, entered twice. It must not be easy to guess for an attacker who knows the email and
/// the workspace (ASVS 5.0, 6.2.4, 6.2.11 and 6.2.12).
pub(crate) async fn check(
    ratings: &Blocking,
    _: &Attempt,
    password: &str,
    again: &str,
    email: &UserEmail,
    workspace: &WorkspaceId,
) -> Result<(), PasswordError> {
    let password = normalized(password);
    match password.chars().count() {
        ..8 => Err(PasswordError::Short),
        129.. => Err(PasswordError::Long),
        _ if password != normalized(again) => Err(PasswordError::Differ),
        _ => {
            let start: String = password.chars().take(GUESSED_CHARS).collect();
            let (email, workspace) = (email.clone(), workspace.clone());
            let is_guessable = ratings.run(move || is_guessable(&start, email.as_str(), workspace.as_str()));
            if is_guessable.await { Err(PasswordError::Common) } else { Ok(()) }
        }
    }
}

/// The number of characters that are rated. The hardest 40 take 0.3 s of a core, and 100 take 2.3 s. A
/// password with words of the account is rated twice.
const GUESSED_CHARS: usize = 40;

/// Returns whether fewer than 10^7 guesses are expected for the password, or for what is left of it without the words
/// of the account. Eight random characters take 10^8. Knows frequent passwords, names, words, dates, repetitions,
/// sequences and patterns of the keyboard.
fn is_guessable(password: &str, email: &str, workspace: &str) -> bool {
    let (local, domain) = email.rsplit_once('@').unwrap_or((email, ""));
    let names: Vec<_> = [local, workspace].into_iter().chain(domain.split('.')).collect();
    let is_separator = |c: char| !c.is_alphanumeric();
    let joined: Vec<_> = names.iter().map(|name| name.replace(is_separator, "")).collect();
    let parts = names.iter().flat_map(|name| name.split(is_separator));
    let words = [email, domain].into_iter().chain(names.iter().copied()).chain(parts);
    let words = words.chain(joined.iter().map(String::as_str)).filter(|word| !word.is_empty());
    let mut words: Vec<_> = words.chain(PRODUCT).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let is_easy = |password: &str| zxcvbn(password, &words).guesses_log10() < 7.0;
    let lower = password.to_lowercase();
    let own = words.iter().filter(|word| word.chars().count() >= 3);
    let rest = own.fold(lower.clone(), |rest, word| rest.replace(&word.to_lowercase(), ""));
    is_easy(password) || rest != lower && is_easy(&rest)
}

/// Returns the argon2id hash of a password, in the PHC string format.
pub(crate) async fn hash(hashes: &Blocking, password: String) -> String {
    hashes.run(move || hash_now(&password)).await
}

/// Returns the same text for the forms in which keyboards and systems enter it, such as `ü` as one or two
/// characters (NIST SP 800-63B, 3.1.1.2; RFC 8265, 4.2).
fn normalized(password: &str) -> String {
    password.nfkc().collect()
}

/// Returns whether `password` has this hash. Without a hash, and with that of no password, takes as long and
/// returns `false`.
pub(crate) async fn verify(hashes: &Blocking, _: &Attempt, password: String, hash: Option<String>) -> bool {
    hashes
        .run(move || {
            let hash = hash.as_deref().and_then(|hash| PasswordHash::new(hash).ok());
            let exists = hash.is_some();
            let expected = hash.or_else(|| PasswordHash::new(&NO_USER).ok());
            let is_same = expected.is_some_and(|expected| {
                Argon2::default().verify_password(normalized(&password).as_bytes(), &expected).is_ok()
            });
            is_same && exists
        })
        .await
}

fn hash_now(password: &str) -> String {
    let hash = Argon2::default().hash_password(normalized(password).as_bytes());
    hash.expect("the parameters are valid").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(password: &str, again: &str) -> Result<(), PasswordError> {
        let (email, workspace) = ("ada.lovelace@acme-corp.example", "demo");
        let (email, workspace) = (email.parse().unwrap(), workspace.parse().unwrap());
        super::check(&Blocking::new(1), &Attempt::uncounted(), password, again, &email, &workspace).await
    }

    #[tokio::test]
    async fn rejects_short_long_and_different_passwords() {
        assert_eq!(check("kT9!x", "kT9!x").await, Err(PasswordError::Short));
        let long = "kT9!x pq".repeat(17);
        assert_eq!(check(&long, &long).await, Err(PasswordError::Long));
        assert_eq!(check("harbour violet spoon", "x").await, Err(PasswordError::Differ));
    }

    #[tokio::test]
    async fn rejects_frequent_passwords_patterns_and_words_of_the_account() {
        for guessable in [
            "password",
            "P@ssw0rd!",
            "aaaaaaaaaa",
            "ada.lovelace@acme-corp.example",
            "lovelace2026",
            "Acme-Corp2026",
            "acme-corp.example1",
            "acmecorp1",
            "AcmeDemo2026!",
            "a.lovelace1",
            "lovelace-acme-corp-7",
            "demodemo1",
            "Enrichment1!",
            "ｐａｓｓｗｏｒｄ",
        ] {
            assert_eq!(check(guessable, guessable).await, Err(PasswordError::Common), "{guessable}");
        }
    }

    #[tokio::test]
    async fn accepts_unrelated_words_and_random_characters() {
        for good in [
            "harbour violet spoon",
            "correct horse battery staple",
            "kT9!xpqZ",
            "ada violet spoon harbour",
            "Ärger über 7 grüne Schränke",
        ] {
            assert_eq!(check(good, good).await, Ok(()), "{good}");
        }
    }

    #[tokio::test]
    async fn verifies_the_hashed_password_only() {
        let (hashes, attempt) = (Blocking::new(1), Attempt::uncounted());
        let hash = hash(&hashes, "harbour violet spoon".to_owned()).await;
        assert!(hash.starts_with("$argon2id$"));
        assert!(verify(&hashes, &attempt, "harbour violet spoon".to_owned(), Some(hash.clone())).await);
        assert!(!verify(&hashes, &attempt, "harbour violet spoo".to_owned(), Some(hash)).await);
        assert!(!verify(&hashes, &attempt, "harbour violet spoon".to_owned(), None).await);
    }
}
