//! The configuration of the web application, and its access to the accounts.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use enrich_host::ClientAddress;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_store::{Accounts, Actor, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::blocking::Blocking;
use crate::refusals::{Refusal, RefusalLog};

/// Opens the accounts. Called for each of a few connections, and again when one is not current.
#[async_trait::async_trait]
pub trait OpenAccounts: Send + Sync {
    /// Opens the accounts. Their operations must not block the thread, and end before the time of a request,
    /// 20 s.
    async fn open(&self) -> Result<Accounts, StoreError>;
}

/// The configuration of the web application.
#[derive(derive_more::Debug)]
#[debug("Config {{ url: {url:?}, .. }}")]
pub struct Config {
    /// The URL under which users reach it, without a slash at the end. Links to it begin with this URL.
    pub url: String,
    /// The URL of the lookup API, for the examples.
    pub api_url: String,
    /// Whether the listener uses TLS. Adds `Strict-Transport-Security` to replies.
    pub is_tls: bool,
    /// The source of the client's address.
    pub client_address: ClientAddress,
    /// Whether the log contains addresses of clients.
    pub logs_client_address: bool,
    /// Counts sign-in attempts. Several nodes share it.
    pub windows: Arc<dyn Windows>,
    /// The clock.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Opens the accounts.
    pub open: Box<dyn OpenAccounts>,
}

/// The maximum number of open accounts. A change that waits for a lock keeps one of them, and the last one is
/// for pages that only read.
const ACCOUNTS_MAX: usize = 4;

/// The web application: the state of all its pages.
pub(crate) struct Console {
    pub(crate) config: Config,
    /// Hashes passwords. A hash takes 19 MiB and about 30 ms of a core.
    pub(crate) hashes: Blocking,
    /// Rates new passwords. A rating can take ten times as long as a hash, so that no sign-in waits for one.
    pub(crate) ratings: Blocking,
    refusals: RefusalLog,
    /// Has a permit for each of the accounts that may be in use.
    permits: Semaphore,
    /// Has a permit for each of them that may make a change.
    changes: Semaphore,
    /// Open accounts that are not in use.
    idle: Mutex<Vec<Accounts>>,
}

impl Console {
    pub(crate) fn new(config: Config) -> Self {
        let [permits, changes] = [ACCOUNTS_MAX, ACCOUNTS_MAX - 1].map(Semaphore::new);
        let (hashes, ratings) = (Blocking::new(2), Blocking::new(1));
        let (refusals, idle) = (RefusalLog::default(), Mutex::default());
        Self { config, hashes, ratings, refusals, permits, changes, idle }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.config.now)()
    }

    /// Returns accounts for pages that read, and opens them if none are idle. A caller must not have others.
    pub(crate) async fn accounts(&self) -> Result<AccountsGuard<'_>, StoreError> {
        let permit = self.permits.acquire().await.expect("never closed");
        let idle = self.idle().pop();
        let accounts = match idle.filter(Accounts::is_current) {
            Some(accounts) => accounts,
            None => self.config.open.open().await?,
        };
        Ok(AccountsGuard { accounts: Some(accounts), console: self, change: None, _permit: permit })
    }

    /// Returns accounts for a change. As [`Self::accounts`].
    pub(crate) async fn accounts_to_change(&self) -> Result<AccountsGuard<'_>, StoreError> {
        self.with_permit(self.changes.acquire().await.expect("never closed")).await
    }

    /// Returns accounts for a change that can be omitted, or `None` if other changes wait.
    pub(crate) async fn accounts_unless_changes_wait(&self) -> Result<Option<AccountsGuard<'_>>, StoreError> {
        let Ok(change) = self.changes.try_acquire() else { return Ok(None) };
        self.with_permit(change).await.map(Some)
    }

    async fn with_permit<'a>(&'a self, change: SemaphorePermit<'a>) -> Result<AccountsGuard<'a>, StoreError> {
        let mut accounts = self.accounts().await?;
        accounts.change = Some(change);
        Ok(accounts)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Accounts>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a refused request.
    pub(crate) fn log_refusal(&self, refusal: Refusal, client: Option<IpAddr>) {
        self.refusals.record(refusal, client.filter(|_| self.config.logs_client_address));
    }

    /// Returns the author of a change.
    pub(crate) fn actor<'a>(&self, email: &'a str, address: Option<IpAddr>) -> Actor<'a> {
        Actor { name: email, address, now: self.now(), authority: None }
    }
}

/// Open accounts, which become idle when the guard is dropped.
pub(crate) struct AccountsGuard<'a> {
    accounts: Option<Accounts>,
    console: &'a Console,
    change: Option<SemaphorePermit<'a>>,
    _permit: SemaphorePermit<'a>,
}

impl Drop for AccountsGuard<'_> {
    fn drop(&mut self) {
        self.console.idle().extend(self.accounts.take());
    }
}

impl Deref for AccountsGuard<'_> {
    type Target = Accounts;

    fn deref(&self) -> &Self::Target {
        self.accounts.as_ref().expect("present until the drop")
    }
}

impl DerefMut for AccountsGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.accounts.as_mut().expect("present until the drop")
    }
}
