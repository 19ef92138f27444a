//! The configuration of the web application, and its access to the accounts.

use std::fmt;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use enrich_host::ClientAddress;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_store::{Accounts, Actor, StoreError};
use tokio::sync::{Mutex, MutexGuard};

/// Opens the accounts. Called at the first request, and again after an error of the store.
#[async_trait::async_trait]
pub trait OpenAccounts: Send + Sync {
    /// Opens the accounts.
    async fn open(&self) -> Result<Accounts, StoreError>;
}

/// The configuration of the web application.
pub struct Config {
    /// The URL under which users reach it, without a slash at the end. Links to it begin with this URL.
    pub url: String,
    /// The URL of the lookup API, for the examples.
    pub api_url: String,
    /// Whether the listener uses TLS. Adds `Strict-Transport-Security` to replies.
    pub is_tls: bool,
    /// The source of the client's address.
    pub client_address: ClientAddress,
    /// Counts sign-in attempts. Several nodes share it.
    pub windows: Arc<dyn Windows>,
    /// The clock.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Opens the accounts.
    pub open: Box<dyn OpenAccounts>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The web application: the state of all its pages.
pub(crate) struct Console {
    pub(crate) config: Config,
    /// The open accounts. `None` before the first request and after an error.
    accounts: Mutex<Option<Accounts>>,
}

impl Console {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, accounts: Mutex::default() }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.config.now)()
    }

    /// Returns the accounts. Other requests wait until the guard is dropped.
    pub(crate) async fn accounts(&self) -> Result<AccountsGuard<'_>, StoreError> {
        let mut accounts = self.accounts.lock().await;
        if accounts.is_none() {
            *accounts = Some(self.config.open.open().await?);
        }
        Ok(AccountsGuard(accounts))
    }

    /// Closes the accounts. The next request opens them again.
    pub(crate) async fn close_accounts(&self) {
        *self.accounts.lock().await = None;
    }

    /// Returns the author of a change.
    pub(crate) fn actor<'a>(&self, email: &'a str, address: Option<IpAddr>) -> Actor<'a> {
        Actor { name: email, address, now: self.now(), authority: None }
    }
}

/// Open accounts.
pub(crate) struct AccountsGuard<'a>(MutexGuard<'a, Option<Accounts>>);

impl Deref for AccountsGuard<'_> {
    type Target = Accounts;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("open")
    }
}

impl DerefMut for AccountsGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("open")
    }
}
