//! The cookie of a browser in which a user has signed in or set the password ("device cookies" of OWASP). The server
//! stores nothing for it.
//!
//! The cookie is a random number and its digest with the hash of the user's password as a key. It is valid
//! for one user, until the password changes. A browser that changes the password gets a new one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use enrich_store::TokenDigest;
use enrich_store::users::User;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::attempts::{self, NOT_SIGNED_IN};
use crate::console::Console;
use crate::cookies::{cookie, set_cookie};
use crate::error::Error;
use crate::random::Token;
use crate::throttle::{self, Attempt};

const COOKIE: &str = "__Host-device";

const AGE_MAX: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// Returns the header that makes a browser known to the user with this password. A browser that is known to `user`
/// keeps its number, and with it its count of attempts.
pub(crate) fn set(
    headers: &HeaderMap,
    user: Option<&User>,
    password_hash: &str,
) -> (HeaderName, HeaderValue) {
    let token = of(headers, user).unwrap_or_else(Token::generate);
    let value = format!("{}.{}", token.reveal(), proof(&token, password_hash));
    set_cookie(COOKIE, &value, AGE_MAX)
}

/// Counts an attempt to sign in as `user`, whose email was entered as `email`: for the browser if the user
/// has signed in with it, or else as that of a stranger.
///
/// Errors: as [`throttle::admit_stranger`].
pub(crate) async fn admit_sign_in(
    console: &Arc<Console>,
    headers: &HeaderMap,
    address: Option<IpAddr>,
    workspace: &WorkspaceId,
    email: &str,
    user: Option<&User>,
) -> Result<Attempt, Error> {
    let admitted = match of(headers, user) {
        Some(token) => throttle::admit_device(console, token.reveal()).await,
        None => throttle::admit_stranger(console, workspace, email, address).await,
    };
    attempts::record_blocked(console, admitted, user, NOT_SIGNED_IN, address)
}

/// Returns the number of the browser, if `user` has signed in with it.
fn of(headers: &HeaderMap, user: Option<&User>) -> Option<Token> {
    let (token, found) = cookie(headers, COOKIE)?.split_once('.')?;
    let token = Token::parse(token)?;
    // Digests are compared, so that the time does not show how many characters agree.
    let is_valid = TokenDigest::from_token(found.as_bytes())
        == TokenDigest::from_token(proof(&token, &user?.password_hash).as_bytes());
    is_valid.then_some(token)
}

/// Both parts have a fixed length before the key, so that no other pair has the same digest.
fn proof(token: &Token, password_hash: &str) -> String {
    hex::encode(
        TokenDigest::from_token(format!("device {} {password_hash}", token.reveal()).as_bytes()).as_bytes(),
    )
}
