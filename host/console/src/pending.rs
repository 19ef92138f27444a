//! Sign-ins that wait for the code of the second factor. The server stores nothing for them.
//!
//! After the right password of a user with a second factor, the browser receives a cookie: the number of the
//! user, the time at which it expires, and an authentication code of both. The key of the code is the hash of
//! the password and the secret of the second factor, so that a change of either ends the sign-in. Without a
//! code of the second factor, the cookie opens nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{Totp, User, UserId};
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use crate::console::Console;
use crate::cookies::{cookie, set_cookie};
use crate::error::Error;
use crate::view::Next;

const COOKIE: &str = "__Host-sign-in";

/// How long the code can be entered after the password.
const AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// A user with a second factor, who has entered the password in this browser.
#[derive(Clone, Debug)]
pub(crate) struct Pending(pub(crate) User);

/// Returns the header that makes the browser wait for the code. Returns `None` if `user` has no second
/// factor.
pub(crate) fn set(user: &User, now: Timestamp) -> Option<(HeaderName, HeaderValue)> {
    let expires_at = now + AGE_MAX;
    let code = mac(user, user.totp.as_ref()?, expires_at).finalize().into_bytes();
    let value = format!("{}.{}.{}", user.id.0, expires_at.unix_ms(), hex::encode(code));
    Some(set_cookie(COOKIE, &value, AGE_MAX))
}

/// Returns the header that removes the cookie.
pub(crate) fn removed_cookie() -> (HeaderName, HeaderValue) {
    set_cookie(COOKIE, "", Duration::ZERO)
}

/// Returns the pending sign-in of the request at `workspace`.
///
/// Errors: that of [`ended`].
pub(crate) async fn find(
    console: &Arc<Console>,
    parts: &Parts,
    workspace: Option<WorkspaceId>,
) -> Result<Pending, Error> {
    let workspace = workspace.ok_or(Error::NotFound)?;
    let pending = match Claim::of(&parts.headers).filter(|claim| claim.expires_at > console.now()) {
        Some(claim) => {
            let user = console.accounts().await?.user(claim.user).await?;
            let is_here = |user: &User| workspace.as_str().eq_ignore_ascii_case(user.workspace.as_str());
            user.filter(|user| is_here(user) && claim.is_of(user)).map(Pending)
        }
        None => None,
    };
    let Ok(Query(next)) = Query::<Next>::try_from_uri(&parts.uri) else { return Err(Error::NotFound) };
    pending.ok_or_else(|| ended(workspace, &next))
}

/// Returns the error of a code that was sent without a password before, or too late.
pub(crate) fn ended(workspace: WorkspaceId, next: &Next) -> Error {
    let next = Some(next.path().to_owned());
    Error::SignIn { workspace: Some(workspace), next, done: Some("password-first") }
}

/// The content of a cookie.
struct Claim {
    user: UserId,
    expires_at: Timestamp,
    code: Vec<u8>,
}

impl Claim {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parts = cookie(headers, COOKIE)?.splitn(3, '.');
        let user = UserId(parts.next()?.parse().ok()?);
        let expires_at = Timestamp::from_unix_ms(parts.next()?.parse().ok()?);
        Some(Self { user, expires_at, code: hex::decode(parts.next()?).ok()? })
    }

    fn is_of(&self, user: &User) -> bool {
        let totp = user.totp.as_ref();
        totp.is_some_and(|totp| mac(user, totp, self.expires_at).verify_slice(&self.code).is_ok())
    }
}

fn mac(user: &User, totp: &Totp, expires_at: Timestamp) -> Hmac<Sha256> {
    let key = [&totp.secret, user.password_hash.as_bytes()].concat();
    let mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes a key of any length");
    mac.chain_update(format!("sign-in {} {} {}", user.workspace, user.id.0, expires_at.unix_ms()))
}
