//! One run: rows in, lookups in flight, rows out in their order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use enrich_host::rows::TableRow;
use indicatif::ProgressBar;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::answer::Answer;
use super::ask::{Asked, Asker, Halt};
use super::done::Done;
use super::input::Input;
use super::key;
use super::sink::Sink;
use super::summary::{Summary, pausing};
use crate::failure::{Exit, Failure};
use crate::{lookup, output};

/// The rows that wait for the answer of an earlier one.
const ROWS_WAITING_MAX: usize = 4096;

/// Lookups given up one after the other, and none answered between: the server is what fails.
const FAILURES_MAX: u32 = 20;

/// How much of the answers a loss of power costs.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

pub struct Run<'a> {
    asker: Arc<Asker>,
    sink: &'a mut Sink,
    summary: Summary,
    progress: ProgressBar,
    concurrency: usize,
    /// Rows that are not written yet, in order.
    waiting: VecDeque<TableRow>,
    /// All of this run, by email, as [`key`] has it: some hundred bytes each.
    lookups: HashMap<String, Lookup>,
    /// Those that are answered and wait for an earlier row, so that the journal has them.
    ahead: HashSet<String>,
    in_flight: JoinSet<(String, Asked)>,
    /// Lookups given up since one was answered.
    failures: u32,
    stopped: Option<Stopped>,
    is_interrupted: bool,
}

enum Lookup {
    InFlight,
    Answered(Answer),
    Failed(&'static str),
}

/// Why a run did not get to its end.
pub struct Stopped {
    /// For programs.
    pub code: &'static str,
    /// For people.
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
            in_flight: JoinSet::new(),
            failures: 0,
            stopped: None,
            is_interrupted: false,
        }
    }

    pub fn into_summary(self) -> Summary {
        self.summary
    }

    /// Goes on after what is done, until the input is over or something stops it: returns what.
    pub async fn go(&mut self, done: Done, input: Input) -> Result<Option<Stopped>, Failure> {
        let mut signals = Signals::new()?;
        self.ahead.extend(done.ahead);
        self.lookups
            .extend(done.answers.into_iter().map(|(email, answer)| (email, Lookup::Answered(answer))));
        if let Some(row) = done.next {
            self.take(row);
        }
        let mut rows = read_on_a_thread(input);
        let mut is_over = false;
        let mut sync = interval(SYNC_INTERVAL);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.write_ready()?;
            let takes_rows = !is_over && self.stopped.is_none();
            if self.in_flight.is_empty() && !takes_rows {
                break;
            }
            let has_room = self.in_flight.len() < self.concurrency && self.waiting.len() < ROWS_WAITING_MAX;
            tokio::select! {
                row = rows.recv(), if takes_rows && has_room => match row {
                    None => is_over = true,
                    Some(Ok(row)) => self.take(row),
                    // The rows before are answered still.
                    Some(Err(why)) => self.stopped = Some(Stopped { code: "unreadable", why }),
                },
                Some(asked) = self.in_flight.join_next() => {
                    let (email, asked) = asked.map_err(|e| Failure::new(format!("a lookup broke down: {e}")))?;
                    self.settle(email, asked)?;
                }
                () = signals.next() => self.interrupt(),
                _ = sync.tick() => {
                    self.sink.sync()?;
                    self.progress.set_message(pausing(self.asker.pace.pause()));
                }
            }
        }
        self.finish()?;
        Ok(self.stopped.take())
    }

    fn take(&mut self, row: TableRow) {
        match &row.email {
            Ok(email) => self.ask(email.clone()),
            Err(bad) => self.summary.tell_bad(row.line, bad),
        }
        self.waiting.push_back(row);
    }

    /// Asks for an email, if it is the first time.
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

    fn interrupt(&mut self) {
        if self.is_interrupted {
            self.progress.finish_and_clear();
            std::process::exit(Exit::Interrupted as i32);
        }
        self.is_interrupted = true;
        self.stop("interrupted", Failure::new("interrupted"));
        let in_flight = self.asker.pace.in_flight();
        self.progress.suspend(|| {
            output::remark(format!("finishing {in_flight} lookups in flight; Ctrl-C again ends at once"));
        });
    }

    /// Lookups in flight are finished, and nothing else is begun. What stopped it first is told.
    fn stop(&mut self, code: &'static str, why: Failure) {
        self.asker.stop.cancel();
        self.stopped.get_or_insert(Stopped { code, why });
    }

    /// Writes the rows whose turn it is.
    fn write_ready(&mut self) -> Result<(), Failure> {
        // While the server fails, it is not known yet whose failures these are: if it stops the run, they are asked
        // for again. But nothing waits for an answer that nobody is asked for.
        let is_stuck = self.in_flight.is_empty() && self.waiting.len() >= ROWS_WAITING_MAX;
        self.write(self.failures == 0 || is_stuck, false)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.stopped.is_none() {
            self.write(true, false)?;
            return self.sink.finish();
        }
        if self.sink.is_stdout() {
            // Nobody keeps them for later.
            return self.write(false, true);
        }
        if self.ahead.is_empty() { self.sink.finish() } else { self.keep_ahead() }
    }

    /// Writes the journal anew, without what is in OUT by now.
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

/// Rows as they come: reading blocks, and stdin may be slow.
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

/// SIGINT or SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::new(format!("can't listen for signals: {e}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
