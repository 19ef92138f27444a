//! The main loop of a run: reads rows, looks up their emails, and writes rows in input order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use enrich_files::TableRow;
use indicatif::ProgressBar;
use rand::seq::SliceRandom;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::answer::Answer;
use super::ask::{Asked, Asker, Halt};
use super::done::{Done, FailedRow};
use super::input::Input;
use super::key;
use super::sink::Sink;
use super::summary::{Summary, pausing};
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::{lookup, output};

/// Maximum number of rows that wait for the answer of an earlier row.
const ROWS_WAITING_MAX: usize = 4096;

/// Number of failed lookups in a row at which the run stops, because the server itself is failing.
const FAILURES_MAX: u32 = 20;

/// Interval between syncs. A power loss costs at most the answers of one interval.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

pub struct Run<'a> {
    asker: Arc<Asker>,
    sink: &'a mut Sink,
    summary: Summary,
    progress: ProgressBar,
    concurrency: usize,
    /// Rows that are not written yet, in order.
    waiting: VecDeque<TableRow>,
    /// All lookups of this run by the [`key`] of their email. Each takes a few hundred bytes.
    lookups: HashMap<String, Lookup>,
    /// The keys of answers in the journal, which wait for an earlier row.
    ahead: HashSet<String>,
    /// The rows in OUT to look up again, by the [`key`] of their email.
    failed: HashMap<String, Vec<FailedRow>>,
    in_flight: JoinSet<(String, Asked)>,
    /// Number of failed lookups since the last answered one.
    failures: u32,
    stopped: Option<Stopped>,
    is_interrupted: bool,
}

enum Lookup {
    InFlight,
    Answered(Answer),
    Failed(&'static str),
}

/// The reason why a run stopped early.
pub struct Stopped {
    /// The reason in JSON output.
    pub code: &'static str,
    /// The error to print.
    pub why: Failure,
}

impl<'a> Run<'a> {
    pub fn new(
        asker: Asker,
        sink: &'a mut Sink,
        summary: Summary,
        progress: ProgressBar,
        concurrency: usize,
    ) -> Self {
        Self {
            asker: Arc::new(asker),
            sink,
            summary,
            progress,
            concurrency,
            waiting: VecDeque::new(),
            lookups: HashMap::new(),
            ahead: HashSet::new(),
            failed: HashMap::new(),
            in_flight: JoinSet::new(),
            failures: 0,
            stopped: None,
            is_interrupted: false,
        }
    }

    pub fn into_summary(self) -> Summary {
        self.summary
    }

    /// Resumes after `done` and runs until all rows have an answer or the run stops early. Returns the reason if it stopped.
    pub async fn go(&mut self, done: Done, input: Input) -> Result<Option<Stopped>, Failure> {
        let mut events = Events::new()?;
        for row in done.failed {
            self.failed.entry(key(&row.email)).or_default().push(row);
        }
        self.ahead.extend(done.ahead);
        for (email, answer) in done.answers {
            self.count_failed(&email, &answer.status);
            self.lookups.insert(email, Lookup::Answered(answer));
        }
        if let Some(row) = done.next {
            self.take(row);
        }
        self.append(&mut events, input).await?;
        if self.stopped.is_none() {
            self.write(true, false)?;
            self.retry(&mut events).await?;
        }
        self.finish()?;
        Ok(self.stopped.take())
    }

    /// Looks up the rows of the input and appends them to the output.
    async fn append(&mut self, events: &mut Events, input: Input) -> Result<(), Failure> {
        let mut rows = read_on_a_thread(input);
        let mut is_over = false;
        loop {
            self.write_ready()?;
            let takes_rows = !is_over && self.stopped.is_none();
            if self.in_flight.is_empty() && !takes_rows {
                return Ok(());
            }
            let has_room = self.in_flight.len() < self.concurrency && self.waiting.len() < ROWS_WAITING_MAX;
            tokio::select! {
                row = rows.recv(), if takes_rows && has_room => match row {
                    None => is_over = true,
                    Some(Ok(row)) => self.take(row),
                    // The rows before it still get their answers.
                    Some(Err(why)) => self.stopped = Some(Stopped { code: "unreadable", why }),
                },
                handled = self.handle_next(events) => handled?,
            }
        }
    }

    /// Looks up the failed rows in OUT again.
    async fn retry(&mut self, events: &mut Events) -> Result<(), Failure> {
        let mut emails: Vec<_> = self.failed.values().map(|rows| rows[0].email.clone()).collect();
        // Rows that always fail can stop the run. With a random order, all other rows are looked up in some run.
        emails.shuffle(&mut rand::rng());
        self.failures = 0;
        loop {
            while self.stopped.is_none()
                && self.in_flight.len() < self.concurrency
                && let Some(email) = emails.pop()
            {
                self.ask(email);
            }
            if self.in_flight.is_empty() {
                return Ok(());
            }
            self.handle_next(events).await?;
        }
    }

    /// Handles the next finished lookup, signal or tick. Cancel safe.
    async fn handle_next(&mut self, events: &mut Events) -> Result<(), Failure> {
        tokio::select! {
            Some(asked) = self.in_flight.join_next() => {
                let (email, asked) = asked.map_err(|_| Failure::new("a lookup panicked"))?;
                self.settle(email, asked)?;
            }
            exit = events.signals.next() => self.interrupt(exit),
            _ = events.sync.tick() => {
                self.sink.sync()?;
                self.progress.set_message(pausing(self.asker.pace.pause()));
            }
        }
        Ok(())
    }

    fn take(&mut self, row: TableRow) {
        match &row.email {
            Ok(email) => self.ask(email.clone()),
            Err(bad) => self.summary.tell_bad(row.line, bad),
        }
        self.waiting.push_back(row);
    }

    /// Starts the lookup of an email, unless it was started before.
    fn ask(&mut self, email: String) {
        let key = key(&email);
        if self.lookups.contains_key(&key) {
            return;
        }
        self.lookups.insert(key.clone(), Lookup::InFlight);
        let asker = self.asker.clone();
        self.in_flight.spawn(async move { (key, asker.ask(&email).await) });
    }

    fn settle(&mut self, email: String, asked: Asked) -> Result<(), Failure> {
        match asked {
            Asked::Answered(answer) => {
                self.failures = 0;
                self.summary.lookups += 1;
                self.summary.matches += u64::from(answer.is_found());
                self.count_failed(&email, &answer.status);
                if !self.is_next(&email) {
                    self.sink.keep(&email, &answer)?;
                    self.ahead.insert(email.clone());
                }
                self.lookups.insert(email, Lookup::Answered(answer));
                if self.sink.is_journal_long() {
                    self.keep_ahead()?;
                }
            }
            Asked::Failed(code) => {
                self.failures += 1;
                self.count_failed(&email, code);
                self.lookups.insert(email, Lookup::Failed(code));
                if self.failures == FAILURES_MAX {
                    let what = format!("{FAILURES_MAX} lookups in a row failed with {code}");
                    self.stop(code, Failure::new(what).advise("the server's log says why"));
                }
            }
            Asked::Unasked => drop(self.lookups.remove(&email)),
            Asked::Halted(halt) => {
                self.lookups.remove(&email);
                let (code, why) = self.tell(halt);
                self.stop(code, why);
            }
        }
        Ok(())
    }

    fn is_next(&self, email: &str) -> bool {
        self.waiting.front().and_then(|row| row.email.as_ref().ok()).is_some_and(|next| key(next) == email)
    }

    fn tell(&self, halt: Halt) -> (&'static str, Failure) {
        let refused = |status: hyper::StatusCode, what: &str| {
            let failure = Failure::new(what).exit(lookup::exit(status));
            match lookup::advice(status, None) {
                Some(advice) => failure.advise(advice),
                None => failure,
            }
        };
        match halt {
            Halt::OutOfCredits => (
                "insufficient_credits",
                refused(hyper::StatusCode::PAYMENT_REQUIRED, "the workspace has no credits left"),
            ),
            Halt::KeyRefused => {
                ("unauthorized", refused(hyper::StatusCode::UNAUTHORIZED, "the server refuses the key"))
            }
            Halt::Unreachable(why) => ("unreachable", self.asker.client.failure(why)),
            Halt::NotUnderstood(status) => (
                "not_understood",
                refused(status, &format!("an answer with status {status} is not one of this service"))
                    .advise("is --url right?"),
            ),
        }
    }

    fn interrupt(&mut self, exit: Exit) {
        if self.is_interrupted {
            self.progress.finish_and_clear();
            std::process::exit(exit as i32);
        }
        self.is_interrupted = true;
        self.stop("interrupted", Failure::new("interrupted").exit(exit));
        let in_flight = self.asker.pace.in_flight();
        self.progress.suspend(|| {
            output::remark(format!("finishing {in_flight} lookups in flight; Ctrl-C again ends at once"));
        });
    }

    /// Stops the run: lookups in flight finish, and no others start. Keeps the first reason.
    fn stop(&mut self, code: &'static str, why: Failure) {
        self.asker.stop.cancel();
        self.stopped.get_or_insert(Stopped { code, why });
    }

    /// Writes the rows at the front of the queue that can be written now.
    fn write_ready(&mut self) -> Result<(), Failure> {
        // Failed rows are held back while lookups fail in a row: if the server is failing, the run stops, and the next run
        // looks them up again. They are written if the queue is full and no lookup is in flight that could unblock it.
        let is_stuck = self.in_flight.is_empty() && self.waiting.len() >= ROWS_WAITING_MAX;
        self.write(self.failures == 0 || is_stuck, false)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let answers = self.take_failed();
        self.sink.replace(&answers)?;
        if self.stopped.is_none() {
            return self.sink.finish();
        }
        if self.sink.is_stdout() {
            // Stdout has no journal, so answers that wait for an earlier row are written now.
            return self.write(false, true);
        }
        if self.ahead.is_empty() { self.sink.finish() } else { self.keep_ahead() }
    }

    /// Counts the rows in OUT that failed before and now have this status.
    fn count_failed(&mut self, email: &str, status: &str) {
        let Some(rows) = self.failed.get(email) else { return };
        rows.iter().for_each(|_| self.summary.count(status));
        self.progress.set_position(self.summary.rows());
    }

    /// Returns the answers that differ from those in OUT, in the order of their rows.
    fn take_failed(&mut self) -> Vec<(Range<u64>, Answer)> {
        let mut answers = Vec::new();
        for (email, rows) in self.failed.drain() {
            let answer = match self.lookups.get(&email) {
                Some(Lookup::Answered(answer)) => answer.clone(),
                Some(Lookup::Failed(code)) => Answer::error(code),
                _ => {
                    rows.iter().for_each(|row| self.summary.count_resumed(&row.status));
                    continue;
                }
            };
            self.ahead.remove(&email);
            let changed = rows.into_iter().filter(|row| row.status != answer.status);
            answers.extend(changed.map(|row| (row.at, answer.clone())));
        }
        answers.sort_by_key(|(at, _)| at.start);
        answers
    }

    /// Rewrites the journal without the answers that are already in OUT.
    fn keep_ahead(&mut self) -> Result<(), Failure> {
        let answers = self.ahead.iter().filter_map(|email| match self.lookups.get(email) {
            Some(Lookup::Answered(answer)) => Some((email.as_str(), answer)),
            _ => None,
        });
        self.sink.keep_anew(answers)
    }

    fn write(&mut self, with_failed: bool, with_gaps: bool) -> Result<(), Failure> {
        let mut text = Vec::new();
        let mut written = 0;
        for at in 0..self.waiting.len() {
            let row = &self.waiting[at];
            let answer = match row.email.as_ref().map(|email| key(email)) {
                Err(bad) => Answer::bad(bad),
                Ok(email) => match self.lookups.get(&email) {
                    Some(Lookup::Answered(answer)) => {
                        self.ahead.remove(&email);
                        answer.clone()
                    }
                    Some(Lookup::Failed(code)) if with_failed => Answer::error(code),
                    _ if with_gaps => continue,
                    _ => break,
                },
            };
            text.extend(self.sink.row(row, &answer));
            self.summary.count(&answer.status);
            written = at + 1;
        }
        self.waiting.drain(..written);
        if !text.is_empty() {
            self.sink.write(&text)?;
            self.progress.set_position(self.summary.rows());
        }
        Ok(())
    }
}

/// Reads rows on a separate thread, because reading blocks and stdin may be slow.
fn read_on_a_thread(input: Input) -> mpsc::Receiver<Result<TableRow, Failure>> {
    const ROWS_READ_AHEAD_MAX: usize = 256;
    let (sender, rows) = mpsc::channel(ROWS_READ_AHEAD_MAX);
    std::thread::spawn(move || {
        for row in input {
            if sender.blocking_send(row).is_err() {
                return;
            }
        }
    });
    rows
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
        Ok(Self { signals: Signals::new()?, sync })
    }
}
