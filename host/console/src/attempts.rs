//! Attempts with a wrong password or code in the audit log.
//!
//! They are recorded after a random time, so that neither the time of the reply nor that of the next request
//! shows whether the account exists.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use enrich_store::StoreError;
use enrich_store::users::User;

use crate::console::Console;
use crate::error::Error;
use crate::refusals::Refusal;
use crate::throttle::Attempt;

/// The maximum delay until an attempt is recorded.
const RECORD_MS_MAX: u64 = 1_000;

/// The author of an attempt to sign in.
pub(crate) const NOT_SIGNED_IN: &str = "not signed in";

/// Records a failed attempt to sign in. An attempt for a user who does not exist is only logged.
pub(crate) fn record_failed(console: &Arc<Console>, user: Option<&User>, address: Option<IpAddr>) {
    let user = user.map(|user| user.id);
    record_later(console, move |console| async move {
        let Some(user) = user else {
            console.log_refusal(Refusal::UnknownAccount, address);
            return Ok(());
        };
        let actor = console.actor(NOT_SIGNED_IN, address);
        console.accounts_to_change().await?.record_attempt(user, false, &actor).await
    });
}

/// Records that further attempts for `user` are refused, if this one is the first in its window.
pub(crate) fn record_blocked(
    console: &Arc<Console>,
    admitted: Result<Attempt, Error>,
    user: Option<&User>,
    author: &str,
    address: Option<IpAddr>,
) -> Result<Attempt, Error> {
    if let Err(Error::TooManyAttempts { is_first: true, .. }) = &admitted {
        let (user, author) = (user.map(|user| user.id), author.to_owned());
        record_later(console, move |console| async move {
            let Some(user) = user else { return Ok(()) };
            let actor = console.actor(&author, address);
            console.accounts_to_change().await?.record_attempt(user, true, &actor).await
        });
    }
    admitted
}

fn record_later<F>(console: &Arc<Console>, record: impl FnOnce(Arc<Console>) -> F + Send + 'static)
where
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let (console, delay_ms) = (console.clone(), rand::random_range(0..RECORD_MS_MAX));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        match record(console).await {
            Ok(()) | Err(StoreError::UnknownUser) => {}
            Err(error) => {
                tracing::error!(target: "enrich::console", %error, "cannot record an attempt to sign in");
            }
        }
    });
}
