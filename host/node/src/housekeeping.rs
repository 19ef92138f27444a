//! The slow periodic work of a node, which blocks its thread: refreshing keys and the people directory, warnings about
//! workspaces with few credits and about a wrong clock, and the removal of old spends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_sqlite::SqliteError;
use enrich_store::records::WorkspaceRow;
use enrich_store::usage::Day;
use enrich_store::{Accounts, StoreError};
use tokio::time::{interval, sleep};
use tracing::{info, warn};

use crate::machine::Machine;
use crate::outage::Outage;

/// Interval between two checks of the balances.
const BALANCES_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between two removals of old spends. Those of one day expire together.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(3_600);

/// Pause between two transactions of a removal, in which others write. On SQLite, only one can write at a time,
/// and a waiting one tries again every 100 ms.
const REMOVAL_PAUSE: Duration = Duration::from_millis(200);

/// Makes changes by other processes visible to lookups until the store is dropped: on a thread of its own, so that a
/// read that the disk does not complete delays nothing else.
pub(crate) fn spawn_refresh<T: Send + Sync + 'static>(
    machine: &dyn Machine,
    name: &'static str,
    store: &Arc<T>,
    refresh: fn(&T) -> Result<(), SqliteError>,
    mut outage: Outage,
    interval: Duration,
) {
    let store = Arc::downgrade(store);
    let task = async move {
        while let Some(store) = store.upgrade() {
            outage.record(&refresh(&store));
            drop(store);
            sleep(interval).await;
        }
    };
    machine.spawn(name, Box::new(|| Box::pin(task)));
}

/// Stores the number of workspaces with few credits in `low_balances`, and removes spends that are older than
/// `keep_spends`. Never returns.
pub(crate) async fn run(
    open: impl AsyncFn() -> Result<Accounts, StoreError>,
    low_balances: &AtomicU64,
    keep_spends: Option<Duration>,
    now: impl Fn() -> Timestamp,
) {
    let removals = async {
        if let Some(keep) = keep_spends {
            remove_old_spends(&open, keep, &now).await;
        }
    };
    tokio::join!(check_balances(&open, low_balances, &now), removals);
}

async fn check_balances(
    open: impl AsyncFn() -> Result<Accounts, StoreError>,
    low_balances: &AtomicU64,
    now: impl Fn() -> Timestamp,
) {
    let (mut crossings, mut idle) = (Crossings::default(), None);
    let mut outage = Outage::new("the balances cannot be checked", "the balances are checked again");
    let mut clock =
        Outage::new("the clock of this node differs from that of PostgreSQL", "the clocks agree again");
    loop {
        let read = async {
            let mut accounts = match idle.take().filter(Accounts::is_current) {
                Some(accounts) => accounts,
                None => open().await?,
            };
            let low = accounts.low_balances().await?;
            // A difference that stays near the limit is reported once.
            let limit = Accounts::CLOCK_DIFFERENCE_MAX / if clock.is_failing() { 2 } else { 1 };
            match accounts.check_clock(&now, limit).await {
                Err(error) if !matches!(error, StoreError::WrongClock { .. }) => return Err(error),
                checked => clock.record(&checked),
            }
            idle = Some(accounts);
            Ok::<_, StoreError>(low)
        }
        .await;
        outage.record(&read);
        if let Ok(low) = &read {
            low_balances.store(low.len() as u64, Ordering::Relaxed);
            crossings.of(low).for_each(|row| {
                warn!(
                    workspace = %row.id,
                    available = row.balance.available,
                    low_balance = row.properties.low_balance,
                    "the workspace has few credits left; grant more with `enrich credits grant`"
                );
            });
        }
        sleep(BALANCES_INTERVAL).await;
    }
}

async fn remove_old_spends(
    open: impl AsyncFn() -> Result<Accounts, StoreError>,
    keep: Duration,
    now: impl Fn() -> Timestamp,
) {
    let mut interval = interval(REMOVAL_INTERVAL);
    loop {
        interval.tick().await;
        match remove_spends(&open, keep, now()).await {
            Ok(0) => {}
            Ok(removed) => info!(removed, days = keep.as_secs() / 86_400, "removed old spends"),
            Err(error) => warn!(%error, "old spends cannot be removed; trying again in an hour"),
        }
    }
}

/// Removes the spends that are older than `keep`, and returns their number. A clock of this machine that is
/// ahead of the clock of the server removes none too early.
async fn remove_spends(
    open: impl AsyncFn() -> Result<Accounts, StoreError>,
    keep: Duration,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let mut accounts = open().await?;
    let now = accounts.clock().await?.map_or(now, |server| server.min(now));
    let mut removed = 0;
    loop {
        let spends = accounts.remove_spends(Day::from_timestamp(now - keep)).await?;
        removed += spends;
        if spends == 0 {
            return Ok(removed);
        }
        sleep(REMOVAL_PAUSE).await;
    }
}

/// The workspaces whose balance was low at the last check.
#[derive(Default)]
struct Crossings(BTreeSet<WorkspaceId>);

impl Crossings {
    /// Returns those of the `low` balances that were not low before.
    fn of<'a>(&mut self, low: &'a [WorkspaceRow]) -> impl Iterator<Item = &'a WorkspaceRow> {
        let before = std::mem::replace(&mut self.0, low.iter().map(|row| row.id.clone()).collect());
        low.iter().filter(move |row| !before.contains(&row.id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use enrich_lib::credit::Balance;
    use enrich_lib::window::Quota;
    use enrich_store::database::{Access, Database, Transaction};
    use enrich_store::sync::Mutex;
    use enrich_store::value::{Row, Value};
    use enrich_store::workspace::WorkspaceProperties;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// The times at which spends were removed, with the first lookup that is kept and the maximum number of spends.
    type Removals = Vec<(Instant, (Vec<u8>, i64))>;

    /// A connection that fails for good after some transactions, and its transactions. The server has a clock of
    /// its own, and spends for three removals.
    #[derive(Clone)]
    struct Connection {
        transactions_left: u32,
        removals: Arc<Mutex<Removals>>,
    }

    const SERVER_NOW: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

    #[async_trait]
    impl Database for Connection {
        async fn begin(&mut self, _: Access) -> Result<Box<dyn Transaction + '_>, StoreError> {
            self.transactions_left = self.transactions_left.checked_sub(1).ok_or(StoreError::Stopped)?;
            Ok(Box::new(self.clone()))
        }

        async fn clock(&mut self) -> Result<Option<Timestamp>, StoreError> {
            Ok(Some(SERVER_NOW))
        }

        async fn faults(&mut self) -> Result<Vec<String>, StoreError> {
            Err(StoreError::Stopped)
        }
    }

    #[async_trait]
    impl Transaction for Connection {
        /// Only the queries of a removal return bytes here.
        async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
            if sql.starts_with("UPDATE removed_until") {
                return Ok(vec![Row::new(vec![Value::OwnedBytes(vec![0; 16])])]);
            }
            let [Value::Bytes(bound), Value::Int(max), _] = values else { return Ok(Vec::new()) };
            let mut removals = self.removals.lock();
            if removals.len() == 3 {
                return Ok(Vec::new());
            }
            removals.push((Instant::now(), (bound.to_vec(), *max)));
            Ok(vec![Row::new(vec![Value::OwnedBytes(bound.to_vec()), Value::Int(1_000)])])
        }

        async fn execute(&mut self, _: &str, _: &[Value<'_>]) -> Result<u64, StoreError> {
            Ok(1_000)
        }

        fn available(&self) -> &'static str {
            ""
        }

        async fn commit(self: Box<Self>) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn uses_a_connection_until_it_fails_and_then_another_one() {
        let opened = AtomicU64::new(0);
        let open = async || {
            opened.fetch_add(1, Ordering::Relaxed);
            Ok(Accounts::new(Connection { transactions_left: 3, removals: Arc::default() }))
        };
        let low = AtomicU64::new(0);
        let keeping = run(open, &low, None, Timestamp::default);
        // Each connection fails at the fourth of 12 checks.
        assert!(timeout(11 * BALANCES_INTERVAL, keeping).await.is_err());
        assert_eq!(opened.into_inner(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn checks_balances_every_10_s_and_removes_spends_every_hour() {
        let opened = AtomicU64::new(0);
        let open = async || {
            opened.fetch_add(1, Ordering::Relaxed);
            Err(StoreError::Stopped)
        };
        let (low, keep) = (AtomicU64::new(0), Duration::from_secs(86_400));
        let keeping = run(open, &low, Some(keep), || Timestamp::from_unix_ms(1_700_000_000_000));
        assert!(timeout(Duration::from_secs(3 * 3_600 + 5), keeping).await.is_err());
        assert_eq!(opened.into_inner(), (1 + 3 * 360) + (1 + 3));
    }

    #[tokio::test(start_paused = true)]
    async fn removals_leave_time_for_others_and_obey_the_clock_of_the_server() {
        let (keep, year) = (Duration::from_secs(86_400), Duration::from_secs(365 * 86_400));
        for (now, earlier) in [(SERVER_NOW + year, SERVER_NOW), (SERVER_NOW - year, SERVER_NOW - year)] {
            let server = Connection { transactions_left: 4, removals: Arc::default() };
            let removed = remove_spends(async || Ok(Accounts::new(server.clone())), keep, now).await;
            assert_eq!(removed.unwrap(), 3_000);
            let (times, bounds): (Vec<_>, Vec<_>) = server.removals.lock().drain(..).unzip();
            assert!(times.windows(2).all(|times| times[1] - times[0] >= REMOVAL_PAUSE), "{times:?}");
            let first_kept = Day::from_timestamp(earlier - keep).first_lookup();
            assert_eq!(bounds, vec![(first_kept.as_bytes().to_vec(), 1_000); 3]);
        }
    }

    #[test]
    fn reports_each_crossing_once() {
        let mut crossings = Crossings::default();
        let mut report = |names: &[&str]| {
            let row = |name: &&str| WorkspaceRow {
                id: name.parse().unwrap(),
                properties: WorkspaceProperties::new(Quota::default()),
                balance: Balance::default(),
                created_at: Timestamp::default(),
            };
            let rows: Vec<_> = names.iter().map(row).collect();
            crossings.of(&rows).map(|row| row.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(report(&["acme"]), ["acme"]);
        assert_eq!(report(&["acme", "bolt"]), ["bolt"]);
        assert!(report(&["bolt"]).is_empty());
        assert_eq!(report(&["acme", "bolt"]), ["acme"]);
    }
}
