//! The progress bar and the summary of a run.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::files::BadRow;
use indicatif::ProgressBar;
use serde_json::json;

use super::row_result::temporary;
use crate::failure::Failure;
use crate::output::{self, counted, grouped};

/// Maximum number of bad rows to list individually.
const BAD_ROWS_LISTED_MAX: usize = 10;

/// The counts of a run.
pub struct Summary {
    started: Instant,
    /// Number of rows that earlier runs wrote.
    pub resumed: u64,
    /// Number of written rows by status, including those of earlier runs.
    pub statuses: BTreeMap<String, u64>,
    /// Number of emails for which this run received a result.
    pub lookups: u64,
    /// Number of matches among `lookups`. By default, only matches are billed.
    pub matches: u64,
    /// Time in which no request was sent, because of the burst limit.
    pub paused: Duration,
    /// Line and reason of the first bad rows.
    bad_rows: Vec<(u64, String)>,
    bad_rows_unlisted: u64,
}

impl Summary {
    pub fn new(resumed: u64, statuses: BTreeMap<String, u64>) -> Self {
        Self {
            started: Instant::now(),
            resumed,
            statuses,
            lookups: 0,
            matches: 0,
            paused: Duration::ZERO,
            bad_rows: Vec::new(),
            bad_rows_unlisted: 0,
        }
    }

    /// Counts a written row.
    pub fn count(&mut self, status: &str) {
        match self.statuses.get_mut(status) {
            Some(count) => *count += 1,
            None => drop(self.statuses.insert(status.to_owned(), 1)),
        }
    }

    /// Counts a row that cannot be looked up, to list it in the summary.
    pub fn count_bad_row(&mut self, line: u64, row: &BadRow) {
        if self.bad_rows.len() < BAD_ROWS_LISTED_MAX {
            self.bad_rows.push((line, row.reason.clone()));
        } else {
            self.bad_rows_unlisted += 1;
        }
    }

    pub fn rows(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Returns the number of rows whose status is an error.
    pub fn errors(&self) -> u64 {
        self.rows() - self.status("found") - self.status("not_found")
    }

    fn has_temporary_errors(&self) -> bool {
        self.statuses.keys().any(|status| temporary::includes(status))
    }

    fn status(&self, status: &str) -> u64 {
        self.statuses.get(status).copied().unwrap_or_default()
    }

    /// Prints the summary to stdout, or to stderr if the rows go to stdout.
    pub fn show(&self, is_json: bool, is_stdout_taken: bool, stopped: Option<&str>) -> Result<(), Failure> {
        for (line, reason) in &self.bad_rows {
            output::remark(format!("line {line}: {reason}"));
        }
        if self.bad_rows_unlisted > 0 {
            let more = grouped(self.bad_rows_unlisted);
            output::remark(format!("… and {more} more; see their status in the output"));
        }
        let text = if is_json { self.to_json(stopped).to_string() } else { self.to_text() };
        if !is_stdout_taken {
            return output::line(text);
        }
        output::remark(text);
        Ok(())
    }

    fn to_json(&self, stopped: Option<&str>) -> serde_json::Value {
        let errors: BTreeMap<_, _> = self.error_counts().collect();
        json!({
            "rows": self.rows(),
            "resumed": self.resumed,
            "found": self.status("found"),
            "not_found": self.status("not_found"),
            "errors": errors,
            "lookups": self.lookups,
            "matches": self.matches,
            "paused_seconds": self.paused.as_secs_f64(),
            "seconds": self.started.elapsed().as_secs_f64(),
            "stopped": stopped,
        })
    }

    fn to_text(&self) -> String {
        let elapsed = self.started.elapsed();
        let new = self.rows() - self.resumed;
        let rate = new as f64 / elapsed.saturating_sub(self.paused).as_secs_f64().max(0.001);
        let pauses = match self.paused.as_secs() {
            0 => String::new(),
            seconds => format!(" with {seconds} s of pauses"),
        };
        let mut text = format!(
            "{} in {:.1} s{pauses}, {} per second: {} found, {} not found, {} with errors",
            counted(new, "row"),
            elapsed.as_secs_f64(),
            if rate < 10.0 { format!("{rate:.1}") } else { grouped(rate as u64) },
            grouped(self.status("found")),
            grouped(self.status("not_found")),
            grouped(self.errors()),
        );
        if self.resumed > 0 {
            text += &format!(", including {} of earlier runs", counted(self.resumed, "row"));
        }
        for (code, count) in self.error_counts() {
            text += &format!("\n  {} {code}", grouped(count));
        }
        let (emails, matches) = (counted(self.lookups, "email"), grouped(self.matches));
        text + &format!("\n{emails} looked up, {matches} matched")
    }

    fn error_counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let errors = self.statuses.iter().filter(|(code, _)| !matches!(code.as_str(), "found" | "not_found"));
        errors.map(|(code, count)| (code.as_str(), *count))
    }
}

/// Creates a progress bar on stderr. It is hidden if stderr is not a terminal, or if the rows are printed to
/// a terminal.
pub fn progress(rows: Option<u64>, resumed: u64, is_stdout_taken: bool) -> ProgressBar {
    if is_stdout_taken && std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match rows {
        Some(_) => "{bar:24} {percent:>3} %  {human_pos} of {human_len}  {rate}  {eta} left  {msg}",
        None => "{human_pos} rows  {rate}  {elapsed}  {msg}",
    };
    let rate = |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
        let _ = write!(w, "{:.0} rows/s", state.per_sec());
    };
    output::progress(rows, resumed, output::progress_style(template).with_key("rate", rate))
}

/// Returns the message about a pause.
pub fn pause_message(left: Duration, reason: &str) -> String {
    format!("paused {} s: {reason}", left.as_secs_f64().ceil())
}

/// Creates the error for a run that stopped early or has rows with errors. Returns `None` if the run finished
/// without errors.
pub fn failure(summary: &Summary, is_resumable: bool, stopped: Option<(Failure, &str)>) -> Option<Failure> {
    let Some((reason, resume_advice)) = stopped else {
        if summary.errors() == 0 {
            return None;
        }
        let failure = Failure::new(match summary.errors() {
            1 => "1 row has an error status".to_owned(),
            errors => format!("{} rows have an error status", grouped(errors)),
        });
        return Some(if is_resumable && summary.has_temporary_errors() {
            failure.advise("run the same command again to retry temporary errors")
        } else {
            failure
        });
    };
    let what = format!("stopped after {}: {}", counted(summary.rows(), "row"), reason.what);
    let advice: Vec<_> = reason.advice.into_iter().chain([resume_advice.to_owned()]).collect();
    Some(Failure::new(what).advise(advice.join("\n  ")).exit(reason.exit))
}
