//! The periodic work of a node, except for the heartbeat: it returns credits, ends the leases of expired nodes, and writes
//! reports.
//!
//! Every statement has at most [`ROWS_MAX`] rows, and one run ends soon after [`RUN_TIME_MAX`]; the next one continues. If
//! PostgreSQL rejects the statement of one part, the other parts run nevertheless.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_store::usage::{UsageCount, UsageCounter};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::column::{at, bigint, credits, key_number};
use crate::error::PostgresError;
use crate::keys::NodeKeys;
use crate::pool::{Pool, Value};
use crate::session::{Session, Sessions};
use crate::workspace::{Return, WorkspaceState};

/// The maximum number of rows in one statement.
const ROWS_MAX: usize = 1_000;

/// The time after which a run sends no further statement of a part that has sent one.
const RUN_TIME_MAX: Duration = Duration::from_millis(200);

/// The interval at which the node ends idle leases and those of expired nodes, and reports its holds and the use of keys.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Upkeep {
    pool: Pool,
    sessions: Arc<Sessions>,
    keys: Arc<NodeKeys>,
    usage: Arc<UsageCounter>,
    /// Notified if a run has left work for the next one.
    unfinished: Arc<Notify>,
    /// When the last report was sent, or `None` if the next run must continue it. Locked during a run.
    reported_at: tokio::sync::Mutex<Option<Instant>>,
    /// The number of recalls answered.
    recalls: AtomicU64,
}

/// The progress of one run.
struct Run {
    deadline: Instant,
    is_finished: bool,
    /// The first statement that PostgreSQL has rejected.
    rejection: Option<PostgresError>,
}

impl Upkeep {
    pub(crate) fn new(
        pool: Pool,
        sessions: Arc<Sessions>,
        keys: Arc<NodeKeys>,
        usage: Arc<UsageCounter>,
        unfinished: Arc<Notify>,
    ) -> Self {
        let (reported_at, recalls) = (tokio::sync::Mutex::default(), AtomicU64::new(0));
        Self { pool, sessions, keys, usage, unfinished, reported_at, recalls }
    }

    /// Returns the number of recalls that the node has answered.
    pub(crate) fn recalls(&self) -> u64 {
        self.recalls.load(Ordering::Relaxed)
    }

    /// Runs all parts that are due.
    pub(crate) async fn run(&self) -> Result<(), PostgresError> {
        let mut reported_at = self.reported_at.lock().await;
        let session = self.sessions.newest();
        let mut run = Run::until(Instant::now() + RUN_TIME_MAX);
        let is_due = reported_at.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL);
        let part = self.answer_recalls(&session, &mut run).await;
        run.record(part)?;
        if is_due {
            end_idle_leases(&session);
        }
        let part = self.report_returns(&session, &mut run).await;
        run.record(part)?;
        if is_due {
            *reported_at = Some(Instant::now());
            let part = self.end_nodes(&mut run).await;
            run.record(part)?;
            let part = self.report_held(&session, &mut run).await;
            run.record(part)?;
            let part = self.keys.write_last_used(&self.pool).await;
            run.record(part)?;
        }
        let part = self.write_usage(&mut run).await;
        run.record(part)?;
        if !run.is_finished {
            *reported_at = None;
            self.unfinished.notify_one();
        }
        run.rejection.map_or(Ok(()), Err)
    }

    /// Ends the session in the store, and writes the usage. Returns leases for up to `time_max`; other nodes return the rest.
    pub(crate) async fn close(&self, time_max: Duration) -> Result<(), PostgresError> {
        let _no_run = self.reported_at.lock().await;
        let mut run = Run::until(Instant::now() + time_max);
        let written = self.write_usage(&mut run).await;
        let session = self.sessions.newest();
        session.end();
        self.pool.query("SELECT node_leave($1)", &[&session.epoch]).await?;
        self.end_nodes(&mut run).await?;
        written
    }

    /// Withdraws the idle credits that other nodes have recalled.
    async fn answer_recalls(&self, session: &Session, run: &mut Run) -> Result<(), PostgresError> {
        let call = "SELECT names, workspaces, numbers, takes, recalls FROM leases_recalled($1, $2)";
        let row = self.pool.query_one(call, &[&session.epoch, &bigint(ROWS_MAX as u64)]).await?;
        let (names, rowids): (Vec<&str>, Vec<i64>) = (row.get(0), row.get(1));
        let (numbers, takes, recalls): (Vec<i64>, Vec<i64>, Vec<i64>) = (row.get(2), row.get(3), row.get(4));
        run.is_finished &= names.len() < ROWS_MAX;
        self.recalls.fetch_add(names.len() as u64, Ordering::Relaxed);
        let leases = names.into_iter().zip(rowids).zip(numbers).zip(takes.into_iter().zip(recalls));
        for (((name, rowid), number), (taken, recall)) in leases {
            let state = name.parse().ok().and_then(|name| session.find(&name));
            session.add_return(match state {
                Some(state) => state.answer_recall(rowid, number, credits(taken), recall),
                // The node does not use the lease: it lost the reply to a request, or to the end of the lease.
                None => Return::end(rowid, number),
            });
        }
        Ok(())
    }

    /// Reports returned credits to the store.
    async fn report_returns(&self, session: &Session, run: &mut Run) -> Result<(), PostgresError> {
        let mut last = (i64::MIN, i64::MIN);
        loop {
            let batch = session.returns(last, ROWS_MAX);
            let Some(end) = batch.last() else { return Ok(()) };
            last = (end.rowid, end.number);
            let rowids: Vec<_> = batch.iter().map(|unreported| unreported.rowid).collect();
            let numbers: Vec<_> = batch.iter().map(|unreported| unreported.number).collect();
            let returned: Vec<_> = batch.iter().map(|unreported| unreported.returned.map(bigint)).collect();
            let recalls: Vec<_> = batch.iter().map(|unreported| unreported.recall).collect();
            let call = "SELECT lease_return($1, $2, $3, $4, $5)";
            let values: [Value<'_>; 5] = [&session.epoch, &rowids, &numbers, &returned, &recalls];
            let locked: Vec<i64> = self.pool.query_one(call, &values).await?.get(0);
            session.confirm_returns(batch.iter().filter(|unreported| !locked.contains(&unreported.rowid)));
            if batch.len() < ROWS_MAX || run.is_over() {
                return Ok(());
            }
        }
    }

    /// Ends the leases of expired nodes.
    async fn end_nodes(&self, run: &mut Run) -> Result<(), PostgresError> {
        let call = "SELECT nodes_end($1)";
        while self.pool.query_one(call, &[&bigint(ROWS_MAX as u64)]).await?.get::<_, i64>(0) > 0 {
            if run.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Reports changed hold totals to the store.
    async fn report_held(&self, session: &Session, run: &mut Run) -> Result<(), PostgresError> {
        let held = |state: Arc<WorkspaceState>| {
            let (rowid, held) = state.unreported_held()?;
            Some((state, rowid, held))
        };
        let changed: Vec<_> = session.states().into_iter().filter_map(held).collect();
        for batch in changed.chunks(ROWS_MAX) {
            let rowids: Vec<_> = batch.iter().map(|(_, rowid, _)| *rowid).collect();
            let holds: Vec<_> = batch.iter().map(|(.., held)| bigint(*held)).collect();
            self.pool.query("SELECT lease_show($1, $2, $3)", &[&session.epoch, &rowids, &holds]).await?;
            for (state, _, held) in batch {
                state.confirm_held(*held);
            }
            if run.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Adds the free lookups since the last call to the usage of the current day. Lookups whose statement fails or is cancelled
    /// are written later, and counted twice if the statement was executed and only its reply was lost.
    async fn write_usage(&self, run: &mut Run) -> Result<(), PostgresError> {
        let (epoch, now) = (self.sessions.newest().epoch, at(self.keys.now()));
        let mut unwritten = Unwritten { counts: self.usage.take(), usage: &self.usage };
        while !unwritten.counts.is_empty() {
            let counts = &unwritten.counts[..unwritten.counts.len().min(ROWS_MAX)];
            let names: Vec<_> = counts.iter().map(|count| count.workspace.as_str()).collect();
            let keys: Vec<_> = counts.iter().map(|count| key_number(count.key)).collect();
            let outcomes: Vec<_> = counts.iter().map(|count| count.outcome).collect();
            let lookups: Vec<_> = counts.iter().map(|count| bigint(count.lookups)).collect();
            let call = "SELECT count_free($1, $2, $3, $4, $5, $6)";
            let values: [Value<'_>; 6] = [&epoch, &names, &keys, &outcomes, &lookups, &now];
            self.pool.query(call, &values).await?;
            let written = counts.len();
            unwritten.counts.drain(..written);
            if !unwritten.counts.is_empty() && run.is_over() {
                break;
            }
        }
        Ok(())
    }
}

/// Free lookups that are not in the usage yet. Dropping it counts them again.
struct Unwritten<'a> {
    counts: Vec<UsageCount>,
    usage: &'a UsageCounter,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.usage.put_back(mem::take(&mut self.counts));
    }
}

/// Ends the leases that no lookup has used for a while. The store receives the ends with the other returns.
fn end_idle_leases(session: &Session) {
    for ended in session.states().iter().filter_map(|state| state.end_idle()) {
        session.add_return(ended);
    }
}

impl Run {
    fn until(deadline: Instant) -> Self {
        Self { deadline, is_finished: true, rejection: None }
    }

    /// Returns `true` if the time is over, and then the next run must continue.
    fn is_over(&mut self) -> bool {
        let is_over = Instant::now() >= self.deadline;
        self.is_finished &= !is_over;
        is_over
    }

    /// Records the result of a part. Only a rejection lets the run continue: without a connection, the other parts would fail
    /// as well, each after its timeout.
    fn record(&mut self, part: Result<(), PostgresError>) -> Result<(), PostgresError> {
        match part {
            Err(error) if error.is_rejection() => {
                self.rejection.get_or_insert(error);
                Ok(())
            }
            part => part,
        }
    }
}
