//! The main loop of a run: reads rows, looks up their emails, and writes rows in input order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::files::TableRow;
use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::input::Input;
use super::lookup::{FailedLookup, LookupClient, LookupOutcome};
use super::previous_run::PreviousRun;
use super::row_result::{RowResult, email_key, temporary};
use super::sink::Sink;
use super::stop::Stopped;
use super::summary::{Summary, pause_message};
use crate::failure::{Exit, Failure};
use crate::output::{self, counted};
use crate::signals::Signals;

/// Maximum number of rows that wait for the result of an earlier row.
const ROWS_WAITING_MAX: usize = 4096;

/// Maximum size of their text, in bytes, which the last of them may exceed. A row may have 1 MiB.
const BYTES_WAITING_MAX: usize = 16 * 1024 * 1024;

/// Number of failed lookups in a row at which the run stops, because the server itself is failing.
const FAILURES_MAX: u32 = 20;

/// Interval between syncs. A power loss costs at most the results of one interval.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Shorter pauses are not reported without a terminal.
const PAUSE_REPORTED_MIN: Duration = Duration::from_secs(5);

pub struct Run<'a> {
    client: Arc<LookupClient>,
    sink: &'a mut Sink,
    summary: Summary,
    progress: ProgressBar,
    concurrency: usize,
    /// Rows that are not written yet, in order.
    waiting: VecDeque<TableRow>,
    /// The size of their text.
    waiting_bytes: usize,
    /// All lookups by the [`email_key`] of their row. Each takes a few hundred bytes.
    lookups: HashMap<String, Lookup>,
    /// The errors in OUT to look up again, by the [`email_key`] of their row.
    failed: HashMap<String, RowResult>,
    /// Whether lookups of `failed` fail again, so that the rest of them keep their errors.
    has_given_up: bool,
    in_flight: JoinSet<(String, LookupOutcome)>,
    /// Number of failed lookups since the last completed one.
    failures: u32,
    stopped: Option<Stopped>,
    is_interrupted: bool,
    /// The start of the last pause that was reported.
    reported_pause: Option<Instant>,
    /// The reasons of the reported pauses.
    reported_reasons: HashSet<&'static str>,
}

enum Lookup {
    InFlight,
    Completed(RowResult),
    Failed(RowResult),
}

impl<'a> Run<'a> {
    pub fn new(
        client: LookupClient,
        sink: &'a mut Sink,
        summary: Summary,
        progress: ProgressBar,
        concurrency: usize,
    ) -> Self {
        Self {
            client: Arc::new(client),
            sink,
            summary,
            progress,
            concurrency,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            lookups: HashMap::new(),
            failed: HashMap::new(),
            has_given_up: false,
            in_flight: JoinSet::new(),
            failures: 0,
            stopped: None,
            is_interrupted: false,
            reported_pause: None,
            reported_reasons: HashSet::new(),
        }
    }

    pub fn into_summary(mut self) -> Summary {
        self.summary.paused = self.client.pauses.totals().values().sum();
        self.summary
    }

    /// Resumes after `previous` and runs until all rows have a result or the run stops early.
    pub async fn execute(&mut self, previous: PreviousRun, input: Input) -> Result<Option<Stopped>, Failure> {
        let mut events = Events::new()?;
        self.lookups
            .extend(previous.results.into_iter().map(|(email, result)| (email, Lookup::Completed(result))));
        self.failed = previous.failed;
        let left = self.append(&mut events, previous.rows, input).await?;
        self.finish(left)?;
        Ok(self.stopped.take())
    }

    /// Looks up `first`, and then the rows of the input, and appends them to the output. Returns those of `first`
    /// that are left.
    async fn append(
        &mut self,
        events: &mut Events,
        mut first: VecDeque<TableRow>,
        input: Input,
    ) -> Result<VecDeque<TableRow>, Failure> {
        let mut rows = input.read_on_a_thread();
        let mut is_at_end = false;
        loop {
            self.write_ready()?;
            let reads_rows = !is_at_end && self.stopped.is_none();
            if self.in_flight.is_empty() && !reads_rows {
                return Ok(first);
            }
            let has_room = self.in_flight.len() < self.concurrency && !self.is_full();
            let next = async {
                match first.pop_front() {
                    Some(row) => Some(Ok(row)),
                    None => rows.recv().await,
                }
            };
            tokio::select! {
                row = next, if reads_rows && has_room => match row {
                    None => is_at_end = true,
                    Some(Ok(row)) => self.enqueue(row),
                    // The rows before it are still looked up.
                    Some(Err(error)) => self.stopped = Some(Stopped::new("unreadable", error)),
                },
                result = self.handle_event(events) => result?,
            }
        }
    }

    /// Handles the next finished lookup, signal or tick. Cancel safe.
    async fn handle_event(&mut self, events: &mut Events) -> Result<(), Failure> {
        tokio::select! {
            Some(finished) = self.in_flight.join_next() => {
                let (email, outcome) = finished.map_err(|_| Failure::new("a lookup panicked"))?;
                self.handle_outcome(email, outcome)?;
            }
            exit = events.signals.next() => self.interrupt(exit),
            _ = events.sync.tick() => {
                self.sink.sync()?;
                self.show_pause();
            }
        }
        Ok(())
    }

    /// Shows a pause in the progress bar. Without one, reports each longer pause once, and shorter ones once when
    /// they add up.
    fn show_pause(&mut self) {
        let pauses = [&self.client.pauses, &self.client.held];
        let current = pauses.iter().find_map(|pauses| pauses.current());
        let current = current.map(|pause| (pause, pause.ends_at.saturating_duration_since(Instant::now())));
        if self.progress.is_hidden() {
            if let Some((pause, left)) = current
                && left >= PAUSE_REPORTED_MIN
                && self.reported_pause.replace(pause.began_at) != Some(pause.began_at)
            {
                self.reported_reasons.insert(pause.reason);
                output::remark(pause_message(left, pause.reason));
            }
            for (reason, total) in pauses.iter().flat_map(|pauses| pauses.totals()) {
                if total >= PAUSE_REPORTED_MIN && self.reported_reasons.insert(reason) {
                    output::remark(pause_message(total, reason));
                }
            }
        }
        let message = current.map(|(pause, left)| pause_message(left, pause.reason));
        self.progress.set_message(message.unwrap_or_default());
    }

    /// Adds a row to the queue and starts its lookup.
    fn enqueue(&mut self, row: TableRow) {
        match &row.email {
            Ok(email) => self.start_lookup(email.clone()),
            Err(bad) => self.summary.count_bad_row(row.line, bad),
        }
        self.waiting_bytes += row.text.len();
        self.waiting.push_back(row);
    }

    /// Returns whether no further row may wait.
    fn is_full(&self) -> bool {
        self.waiting.len() >= ROWS_WAITING_MAX || self.waiting_bytes >= BYTES_WAITING_MAX
    }

    /// Starts the lookup of an email, unless it was started before.
    fn start_lookup(&mut self, email: String) {
        let key = email_key(&email);
        if self.lookups.contains_key(&key) {
            return;
        }
        if let Some(error) = self.failed.get(&key).filter(|_| self.has_given_up) {
            self.lookups.insert(key, Lookup::Failed(error.clone()));
            return;
        }
        self.lookups.insert(key.clone(), Lookup::InFlight);
        let client = self.client.clone();
        self.in_flight.spawn(async move { (key, client.lookup(&email).await) });
    }

    fn handle_outcome(&mut self, email: String, outcome: LookupOutcome) -> Result<(), Failure> {
        match outcome {
            LookupOutcome::Completed(result) => {
                self.failures = 0;
                self.summary.lookups += 1;
                self.summary.matches += u64::from(result.is_found());
                self.lookups.insert(email, Lookup::Completed(result));
            }
            LookupOutcome::Failed(FailedLookup { status, result }) => {
                // Rows that always fail must not keep the others from being looked up.
                self.failures += u32::from(!self.has_given_up || !self.failed.contains_key(&email));
                if self.failures == FAILURES_MAX && self.failed.contains_key(&email) {
                    (self.has_given_up, self.failures) = (true, 0);
                } else if self.failures == FAILURES_MAX {
                    let reason = result.reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
                    let what = format!("{FAILURES_MAX} lookups in a row failed with {status}{reason}");
                    let id = result.lookup_id.as_ref().map_or_else(String::new, |id| format!(" for {id}"));
                    let advice = match status {
                        temporary::NO_ANSWER | temporary::UNEXPECTED_RESPONSE => {
                            "check --url, and the proxies before the server".to_owned()
                        }
                        _ => format!("search the server's log{id}"),
                    };
                    self.stop(Stopped::new(status, Failure::new(what).advise(advice)));
                }
                self.lookups.insert(email, Lookup::Failed(result));
            }
            LookupOutcome::Skipped => drop(self.lookups.remove(&email)),
            LookupOutcome::Stop(reason) => {
                self.lookups.remove(&email);
                self.stop(Stopped::because(reason, &self.client.http));
            }
        }
        Ok(())
    }

    fn interrupt(&mut self, exit: Exit) {
        if self.is_interrupted {
            // The terminal and its shell each send a SIGHUP.
            if matches!(exit, Exit::HungUp) {
                return;
            }
            self.progress.finish_and_clear();
            std::process::exit(exit as i32);
        }
        self.is_interrupted = true;
        self.stop(Stopped::new("interrupted", Failure::new("interrupted").exit(exit)));
        let in_flight = counted(self.in_flight.len() as u64, "lookup");
        self.progress.suspend(|| {
            output::remark(format!(
                "finishing {in_flight} in flight; press Ctrl-C again to exit immediately"
            ));
        });
    }

    /// Stops the run: lookups in flight finish, and no others start. Keeps the first reason.
    fn stop(&mut self, stopped: Stopped) {
        self.client.stop.cancel();
        self.stopped.get_or_insert(stopped);
    }

    /// Writes the rows at the front of the queue that can be written now.
    fn write_ready(&mut self) -> Result<(), Failure> {
        // Failed rows are held back while lookups fail in a row: if the server is failing, the run stops, and
        // the next run looks them up again. They are written if the queue is full and no lookup is in flight
        // that could unblock it.
        let is_blocked = self.in_flight.is_empty() && self.is_full();
        self.write(self.failures == 0 || is_blocked)
    }

    /// Completes the output.
    fn finish(&mut self, left: VecDeque<TableRow>) -> Result<(), Failure> {
        if self.stopped.is_none() {
            self.write(true)?;
        } else {
            self.write_waiting(left)?;
        }
        self.sink.sync()
    }

    /// Writes the results of a stopped run that wait for an earlier row, because they may be paid for.
    fn write_waiting(&mut self, mut left: VecDeque<TableRow>) -> Result<(), Failure> {
        if self.sink.is_rewriting() {
            // The other rows of OUT keep their errors.
            for (email, error) in self.failed.drain() {
                self.lookups.entry(email).or_insert(Lookup::Failed(error));
            }
            self.waiting.append(&mut left);
            self.write(true)?;
        }
        let is_completed = |lookups: &HashMap<_, _>, row: &TableRow| {
            let email = row.email.as_ref().map(|email| email_key(email));
            email.is_ok_and(|email| matches!(lookups.get(&email), Some(Lookup::Completed(_))))
        };
        if self.sink.is_stdout() {
            // No run resumes this one, so the rows without a result are left out.
            self.waiting.retain(|row| row.email.is_err() || is_completed(&self.lookups, row));
        } else {
            // The next run looks up the rows without a result again.
            let last = self.waiting.iter().rposition(|row| is_completed(&self.lookups, row));
            self.waiting.truncate(last.map_or(0, |last| last + 1));
            for email in self.waiting.iter().filter_map(|row| row.email.as_ref().ok()) {
                let no_answer = || Lookup::Failed(RowResult::error(temporary::NO_ANSWER, None));
                self.lookups.entry(email_key(email)).or_insert_with(no_answer);
            }
        }
        self.write(true)
    }

    /// Writes rows from the front of the queue, up to the first row without a result. Failed rows count as
    /// rows with a result only `with_failed`.
    fn write(&mut self, with_failed: bool) -> Result<(), Failure> {
        let mut text = Vec::new();
        let mut written = 0;
        for row in &self.waiting {
            let result = match row.email.as_ref().map(|email| email_key(email)) {
                Err(bad) => RowResult::bad_row(bad),
                Ok(email) => match self.lookups.get(&email) {
                    Some(Lookup::Completed(result)) => result.clone(),
                    Some(Lookup::Failed(result)) if with_failed => result.clone(),
                    _ => break,
                },
            };
            text.extend(self.sink.row(row, &result));
            self.summary.count(&result.status);
            written += 1;
        }
        let bytes = self.waiting.drain(..written).map(|row| row.text.len()).sum();
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        if !text.is_empty() {
            self.sink.write(&text, written as u64)?;
            self.progress.set_position(self.summary.rows());
        }
        Ok(())
    }
}

/// The events that a run handles besides its rows.
struct Events {
    signals: Signals,
    sync: Interval,
}

impl Events {
    fn new() -> Result<Self, Failure> {
        let mut sync = interval(SYNC_INTERVAL);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { signals: Signals::new()?.with_hangup()?, sync })
    }
}
