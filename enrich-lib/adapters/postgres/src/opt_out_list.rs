//! The opt-outs of all nodes, in the memory of one.
//!
//! A task reads the changes since its last read four times a second. A lookup uses the list for
//! one second after the database was asked for changes, and fails afterwards, so that an opt-out is honoured on all nodes within
//! a second, whatever happens to the network or the database. Each person takes about 35 bytes.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::OptOuts;
use enrich_store::sync::RwLock;
use enrich_store::{Backoff, EmailHash, EmailHasher, OptOut};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::connect::Server;
use crate::error::PostgresError;
use crate::opt_outs::Page;
use crate::pool::Client;

/// How long a person may be found after the opt-out.
const TTL: Duration = Duration::from_secs(1);

/// The interval of reads. Several fit into [`TTL`], in case one of them fails.
const INTERVAL: Duration = Duration::from_millis(250);

/// The backoff before reconnecting. All lookups fail meanwhile.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), INTERVAL);

/// The people who opted out, for one of several nodes.
pub struct SharedOptOuts {
    hasher: EmailHasher,
    list: Arc<RwLock<List>>,
    task: JoinHandle<()>,
}

struct List {
    hashes: HashSet<EmailHash>,
    /// When lookups stop using the list.
    ends_at: Instant,
    /// The reason why the last read failed.
    error: Option<String>,
}

impl SharedOptOuts {
    /// Reads all opt-outs, and starts the task that reads the changes. `limit` is the timeout of one request. All changes are
    /// passed to `changed`, beginning with those that exist.
    ///
    /// Errors: [`PostgresError::PeopleKey`] if the hashes in the database were made with another key than that of `hasher`.
    pub async fn open(
        server: Server,
        limit: Duration,
        hasher: EmailHasher,
        changed: impl Fn(Vec<OptOut>) + Send + Sync + 'static,
    ) -> Result<Self, PostgresError> {
        let list = List { hashes: HashSet::new(), ends_at: Instant::now(), error: None };
        let list = Arc::new(RwLock::new(list));
        let mut reader = Reader {
            server,
            limit,
            hasher: hasher.clone(),
            list: list.clone(),
            end: 0,
            loading: Some(HashSet::new()),
            changed: Box::new(changed),
        };
        let client = reader.connect().await?;
        reader.read(&client).await?;
        Ok(Self { hasher, list, task: tokio::spawn(reader.run(client)) })
    }

    /// Returns the number of people who opted out.
    pub fn len(&self) -> usize {
        self.list.read().hashes.len()
    }

    /// Returns whether no one opted out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[async_trait]
impl OptOuts for SharedOptOuts {
    /// Reads only memory.
    ///
    /// Errors: [`PostgresError::OptOutsOutdated`].
    async fn contains(&self, email: &Email) -> Result<bool, PortError> {
        let hash = self.hasher.opt_out_hash(email);
        let list = self.list.read();
        if Instant::now() < list.ends_at {
            return Ok(list.hashes.contains(&hash));
        }
        let reason = list.error.clone().unwrap_or_else(|| "PostgreSQL has not replied".to_owned());
        Err(PostgresError::OptOutsOutdated(reason).into())
    }
}

/// The state of the task.
struct Reader {
    server: Server,
    limit: Duration,
    hasher: EmailHasher,
    list: Arc<RwLock<List>>,
    /// The number of the last change that was read.
    end: i64,
    /// The new list while all opt-outs are being read.
    loading: Option<HashSet<EmailHash>>,
    changed: Box<dyn Fn(Vec<OptOut>) + Send + Sync>,
}

impl Reader {
    /// Reads changes for ever.
    async fn run(mut self, client: Client) {
        let (mut client, mut backoff) = (Some(client), BACKOFF);
        loop {
            if client.is_some() {
                sleep(INTERVAL).await;
            }
            match self.read_on(client.take()).await {
                Ok(connected) => {
                    client = Some(connected);
                    backoff.reset();
                }
                Err(error) => {
                    self.list.write().error = Some(error.to_string());
                    sleep(backoff.next_pause()).await;
                }
            }
        }
    }

    /// Reads on this connection, or on a new one.
    async fn read_on(&mut self, client: Option<Client>) -> Result<Client, PostgresError> {
        let client = match client {
            Some(client) => client,
            None => self.connect().await?,
        };
        self.read(&client).await?;
        Ok(client)
    }

    async fn connect(&self) -> Result<Client, PostgresError> {
        timeout(self.limit, Client::connect(&self.server, ""))
            .await
            .unwrap_or(Err(PostgresError::TimedOut(self.limit)))
    }

    /// Reads until there are no more changes.
    async fn read(&mut self, client: &Client) -> Result<(), PostgresError> {
        loop {
            let asked_at = Instant::now();
            let reading = timeout(self.limit, Page::read(client, self.hasher.fingerprint(), self.end));
            let page = reading.await.unwrap_or(Err(PostgresError::TimedOut(self.limit)))?;
            let Some(page) = page else {
                (self.end, self.loading) = (0, Some(HashSet::new()));
                continue;
            };
            let is_last = page.is_last;
            self.apply(page, asked_at);
            if is_last {
                return Ok(());
            }
        }
    }

    fn apply(&mut self, page: Page, asked_at: Instant) {
        if let Some(loading) = &mut self.loading {
            page.changes.iter().for_each(|change| apply(loading, change));
        }
        let mut list = self.list.write();
        if self.loading.is_none() {
            page.changes.iter().for_each(|change| apply(&mut list.hashes, change));
        }
        if page.is_last {
            let replaced = self.loading.take().map(|loaded| std::mem::replace(&mut list.hashes, loaded));
            (list.ends_at, list.error) = (asked_at + TTL, None);
            drop(list); // free the old list's memory outside the lock
            drop(replaced);
        }
        self.end = page.end;
        if !page.changes.is_empty() {
            (self.changed)(page.changes);
        }
    }
}

fn apply(hashes: &mut HashSet<EmailHash>, change: &OptOut) {
    if change.is_withdrawn {
        hashes.remove(&change.email_hash);
    } else {
        hashes.insert(change.email_hash);
    }
}

impl Drop for SharedOptOuts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for SharedOptOuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOptOuts").finish_non_exhaustive()
    }
}
