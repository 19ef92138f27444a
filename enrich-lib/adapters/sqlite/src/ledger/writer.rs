//! Group commit: one writer commits all spends that were queued during the previous commit as one batch.
//!
//! There is no fixed waiting window. A single spend is committed at once. On its own thread, the writer lets
//! all ready tasks queue their spends first ([`super::writer_thread`]).
//!
//! ```text
//! queued ──► committing ──► committed      the spend is durable
//!    │           └────────► failed         nothing that it may have left on disk can be recovered
//!    └──► withdrawn                        it was queued for too long
//! ```
//!
//! A spend whose transaction has begun is never given up: its caller has no result until the outcome is
//! known. If a sync fails, the outcome is unknown until the next start, and the writer ends.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use enrich_lib::receipt::RECEIPT_TTL;
use enrich_store::batch::{BatchReceiver, Replies};
use enrich_store::usage::UsageCount;
use enrich_store::{Clocks, KeyUse, StoreError};
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tracing::info;

use super::commit::{self, CommitError, write_spends};
use super::rows;
use super::shared::Shared;
use super::spend::{BegunSpend, JobResult, Spend};
use super::usage;
use super::writer_thread::pause;
use crate::column::ms;
use crate::error::SqliteError;
use crate::files::dir::LastUse;
use crate::files::{database, wal};

/// Maximum number of keys whose last use is written per tick. Each key updates a separate page.
const KEY_USES_MAX: usize = 100;

/// Maximum number of jobs in one commit. Bounds how long the first job waits for the last.
const BATCH_MAX: usize = 512;

/// The length of the write-ahead log at which it is copied into the database: 41 MB. Commits wait for the
/// copy. At low rates, it takes 2 ms, because many frames are versions of few pages; a shorter log would only
/// be copied more often.
const CHECKPOINT_FRAMES: i32 = 10_000;

/// The number of spends in the log at which it is copied. At high rates, they fill many pages: a full log
/// would take 40 ms.
const CHECKPOINT_SPENDS: usize = 20_000;

/// How long the writer pauses for commands of other processes, and how often. Commands retry every 1 to 2 ms.
///
/// Without the pause, 40 runs of `enrich credits grant` beside `enrich bulk --concurrency 256` took up to
/// 4.0 s on a disk whose syncs take 50 ms, and commands fail after 5 s. With it, they took up to 0.7 s. It
/// makes little difference if a sync takes 10 ms.
const GAP: Duration = Duration::from_millis(3);
const GAP_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) enum Job {
    Spend(Spend),
    Tick(Clocks),
    /// Replies when the writer has ended.
    Close,
}

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    /// Rowid of the last grant that was applied.
    grants_seen: i64,
    /// Spends whose commit failed before its sync. They fail when it is certain that recovery does not find
    /// it.
    in_doubt: Vec<BegunSpend>,
    /// The error of the last commit that failed, until another one succeeds.
    commit_error: Option<String>,
    last_gap: Duration,
    /// The length of the write-ahead log after the last commit.
    log_frames: Arc<AtomicI32>,
    /// The number of spends in the log since the last copy.
    log_spends: usize,
    checkpointed: Result<(), SqliteError>,
}

impl Writer {
    pub(crate) fn new(mut db: Connection, shared: Arc<Shared>) -> Result<Self, SqliteError> {
        // Keeps the statement journal of a multi-row `INSERT`, a few pages, in memory instead of a temporary
        // file.
        db.pragma_update(None, "temp_store", "MEMORY")?;
        let last_gap = shared.elapsed();
        // Replaces SQLite's own checkpoints, which are part of a commit, before its replies.
        let log_frames = Arc::new(AtomicI32::new(0));
        let counted = log_frames.clone();
        db.wal_hook(Some(move |_: &mut Wal, frames| {
            counted.store(frames, Ordering::Relaxed);
            Ok(())
        }))?;
        let grants_seen =
            db.query_row("SELECT coalesce(max(rowid), 0) FROM credit_grant", [], |row| row.get(0))?;
        Ok(Self {
            db,
            shared,
            grants_seen,
            in_doubt: Vec::new(),
            commit_error: None,
            last_gap,
            log_frames,
            log_spends: 0,
            checkpointed: Ok(()),
        })
    }

    pub(crate) async fn run(mut self, mut queue: BatchReceiver<Job, JobResult>) {
        let (mut jobs, mut closing) = (Vec::new(), None);
        while !self.shared.has_failed() && queue.take(&mut jobs, BATCH_MAX).await {
            let (mut spends, mut ticks) = (Vec::with_capacity(jobs.len()), Vec::new());
            for (job, reply) in jobs.drain(..).map(enrich_store::batch::Job::into_parts) {
                match job {
                    Job::Spend(spend) => spends.push(BegunSpend::new(spend, reply)),
                    Job::Tick(now) => ticks.push((now, reply)),
                    Job::Close => closing = Some(reply),
                }
            }
            if let Some((now, _)) = ticks.last() {
                self.advance(now.elapsed);
            }
            self.commit(spends);
            let has_ticked = !ticks.is_empty();
            // While the disk did not respond, each caller of a tick may have given up.
            for (_, reply) in ticks.into_iter().filter(|(_, reply)| !reply.is_abandoned()) {
                reply.send(self.tick().map(|()| None));
            }
            let log_frames = self.log_frames.load(Ordering::Relaxed);
            // Copies the log into the database, so that the next commit can start it again. If this fails, the log keeps
            // everything, and the next commit tries again.
            if log_frames >= CHECKPOINT_FRAMES || self.log_spends >= CHECKPOINT_SPENDS {
                self.checkpointed = database::apply_log(&self.db);
                if self.checkpointed.is_ok() {
                    self.log_spends = 0;
                }
            }
            if has_ticked && self.gap_is_due() {
                pause(GAP).await;
            }
        }
        let closed = self.close();
        drop(self);
        if let Some(closing) = closing {
            closing.send(closed.map(|()| None));
        }
    }

    /// Returns whether it is time to let other processes write. Their attempts would rarely fall between two
    /// commits.
    fn gap_is_due(&mut self) -> bool {
        let now = self.shared.elapsed();
        let is_due = now >= self.last_gap + GAP_INTERVAL;
        if is_due {
            self.last_gap = now;
        }
        is_due
    }

    /// Writes the remaining state, and moves all commits from the write-ahead log into the database.
    fn close(&mut self) -> Result<(), SqliteError> {
        self.shared.failure()?;
        self.commit(Vec::new());
        let written = self.write_statistics(usize::MAX);
        self.shared.failure()?;
        written?;
        if database::empty_log(&self.db)? {
            let _ = self.shared.serve.record(LastUse::Closed); // otherwise, the next start checks the files
        } else {
            info!("another process reads the accounts; the next start checks their files");
        }
        Ok(())
    }

    /// Writes spends as one batch.
    fn commit(&mut self, mut spends: Vec<BegunSpend>) {
        let mut replies = Replies::default();
        match self.repair_failed_commit(&mut replies) {
            Ok(()) if spends.is_empty() => {}
            Ok(()) => {
                // Ids of one batch are close to each other, but in random order. Inserts in order find the
                // same page again.
                spends.sort_unstable_by_key(|spend| spend.lookup().lookup_id);
                self.write(spends, &mut replies);
                if !self.in_doubt.is_empty() {
                    // If it fails, the next commit or tick tries again.
                    let _ = self.repair_failed_commit(&mut replies);
                }
            }
            Err(error) => self.reject(spends, &error, &mut replies),
        }
        self.shared.set_unwritable(self.commit_error.is_some());
    }

    fn write(&mut self, mut spends: Vec<BegunSpend>, replies: &mut Replies) {
        let begun = (self.shared.clock)();
        let written = write_spends(&mut self.db, &spends, ms(self.shared.wall()));
        self.shared.commits.record_duration((self.shared.clock)().saturating_sub(begun));
        match &written {
            Ok(_) => {}
            // Such as a spend of credits that an operator has withdrawn.
            Err(CommitError::Rejected(error)) if error.is_constraint() => {}
            Err(_) => self.shared.commits.record_failure(),
        }
        match self.check_sync(written) {
            Ok(repeated) => {
                if self.in_doubt.is_empty() {
                    self.commit_error = None;
                }
                self.shared.commits.record(spends.len());
                self.log_spends += spends.len();
                let mut repeated = repeated.into_iter().peekable();
                for (index, spend) in spends.into_iter().enumerate() {
                    match repeated.next_if(|(repeated, _)| *repeated == index) {
                        None => spend.succeed(&self.shared, replies),
                        Some((_, result)) => {
                            spend.end_unspent(result.map_err(SqliteError::from), &self.shared, replies);
                        }
                    }
                }
            }
            // A constraint rejected one workspace's spend. Write each half alone, so that the others succeed after few
            // commits.
            Err(CommitError::Rejected(error)) if spends.len() > 1 && error.is_constraint() => {
                let second_half = spends.split_off(spends.len() / 2);
                for half in [spends, second_half] {
                    // After a failed sync, the outcome of no later commit can be trusted.
                    if !self.shared.has_failed() {
                        self.write(half, replies);
                    }
                }
            }
            Err(CommitError::Rejected(error)) => {
                // On a full disk, lookups that cost nothing are answered.
                if error.is_busy() {
                    self.commit_error = Some(error.to_string());
                }
                self.reject(spends, &error.to_string(), replies);
            }
            Err(CommitError::InDoubt(error)) => {
                self.commit_error = Some(error.to_string());
                self.in_doubt.extend(spends);
            }
            // Without a reply, the callers wait until the process ends.
            Err(CommitError::SyncFailed(_)) => {}
        }
    }

    /// Fails spends of which nothing was written.
    fn reject(&self, spends: Vec<BegunSpend>, why: &str, replies: &mut Replies) {
        spends.into_iter().for_each(|spend| spend.fail(why, &self.shared, replies));
    }

    /// Commits a small change if the last commit failed. Fails the spends in doubt when it is certain that recovery
    /// does not find them.
    fn repair_failed_commit(&mut self, replies: &mut Replies) -> Result<(), String> {
        let Some(why) = self.commit_error.clone() else { return Ok(()) };
        let overwritten = commit::overwrite_failed_commit(&mut self.db);
        let overwritten = self.check_sync(overwritten);
        // On a full disk, not even the first frame of the failed commit was written.
        let has_no_frame =
            || !self.in_doubt.is_empty() && wal::ends_at_last_commit(&self.db).unwrap_or(false);
        match overwritten {
            Err(error) if self.shared.has_failed() || !has_no_frame() => Err(error.to_string()),
            _ => {
                self.commit_error = None;
                let spends = mem::take(&mut self.in_doubt);
                self.reject(spends, &why, replies);
                Ok(())
            }
        }
    }

    fn tick(&mut self) -> Result<(), SqliteError> {
        self.shared.failure()?;
        rows::read_grants(&self.db, &self.shared, &mut self.grants_seen)?;
        if let Some(error) = self.commit_error.clone() {
            return Err(StoreError::NotCommitted(error).into());
        }
        let checkpointed = mem::replace(&mut self.checkpointed, Ok(()));
        self.write_statistics(KEY_USES_MAX).and(checkpointed)
    }

    /// Expires overdue holds, and adds up the credits that are held. Idle accounts receive the time when they
    /// are used next.
    fn advance(&mut self, now: Duration) {
        let mut held = 0;
        for state in self.shared.take_touched() {
            let mut account = state.account();
            account.advance(now);
            held += account.balance().held;
            if !account.is_at_rest() {
                self.shared.touch(&state);
            }
        }
        self.shared.credits_held.store(held, Ordering::Relaxed);
    }

    /// Writes the values that operators can view: when keys were last used, and free lookups. Deletes old receipts.
    fn write_statistics(&mut self, key_uses_max: usize) -> Result<(), SqliteError> {
        let has_old_receipts = rows::has_old_receipts(&self.db, ms(self.shared.wall() - RECEIPT_TTL))?;
        let used = self.shared.keys.take_used(key_uses_max);
        let free = self.shared.usage.take();
        if used.is_empty() && free.is_empty() && !has_old_receipts {
            return Ok(());
        }
        self.write_statistics_rows(&used, &free).inspect_err(|_| self.shared.usage.put_back(free))
    }

    fn write_statistics_rows(&mut self, used: &[KeyUse], free: &[UsageCount]) -> Result<(), SqliteError> {
        let tx = database::begin(&mut self.db)?;
        rows::write_key_uses(&tx, used)?;
        usage::add_free(&tx, free)?;
        rows::delete_old_receipts(&tx, ms(self.shared.wall() - RECEIPT_TTL))?;
        let committed = commit::commit(tx);
        Ok(self.check_sync(committed)?)
    }

    /// Ends the ledger if a sync failed.
    fn check_sync<T>(&self, written: Result<T, CommitError>) -> Result<T, CommitError> {
        written.inspect_err(|error| {
            if let CommitError::SyncFailed(error) = error {
                self.shared.fail(error);
            }
        })
    }
}
