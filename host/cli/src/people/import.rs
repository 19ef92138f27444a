//! `enrich people import`

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use enrich_files::{Columns, FileError, Person, RowError, Rows};
use enrich_sqlite::{Imported, People};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::input::Input;
use super::rejects::Rejects;
use crate::args::{Format, ImportArgs};
use crate::failure::{Exit, Failure};
use crate::output::{self, grouped};
use crate::private_file::beside;
use crate::signals;

pub fn import(people: &People, args: ImportArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let (format, allow_rejects) = (args.format, args.allow_rejects);
    let outcome = run(people, args)?;
    let shown = outcome.show(format, started.elapsed());
    outcome.into_result(allow_rejects).and(shown)
}

/// Imports all rows, or only the rows before a signal or a read error.
fn run(people: &People, args: ImportArgs) -> Result<Outcome, Failure> {
    let is_stdin = args.file == Path::new("-");
    let name = if is_stdin { Path::new("stdin") } else { &args.file };
    let (file, bytes): (Box<dyn Read + Send>, _) = if is_stdin {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(name).map_err(|e| Failure::file("read", name, e))?;
        let bytes = file.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len());
        (Box::new(file), bytes)
    };
    let list = args.rejects.unwrap_or_else(|| beside(name, ".rejects.csv"));
    let mut rejects = Rejects::new(list, &args.file)?;
    let progress = progress(bytes);
    let (input, stop) = Input::new(progress.wrap_read(file));
    let interrupted = Arc::new(OnceLock::new());
    signals::watch({
        let (interrupted, progress) = (interrupted.clone(), progress.clone());
        move |exit| {
            let _ = interrupted.set(exit);
            stop.stop();
            let remark = "importing the rows that were read; Ctrl-C again ends at once";
            progress.suspend(|| output::remark(remark));
        }
    })?;
    let interruption = || interrupted.get().map(|&exit| Failure::new("interrupted").exit(exit));

    let columns =
        Columns { email: args.email_column, url: args.url_column, confidence: args.confidence_column };
    let rows = Rows::read(input, &columns)
        .map_err(|error| interruption().map_or_else(|| unreadable(name, &error), |why| stopped(0, why)))?;
    let mut import = people.import()?;
    let mut why_stopped = None;
    for row in rows {
        why_stopped = interruption();
        if why_stopped.is_some() {
            break;
        }
        match row {
            Ok(Person { email, profile, confidence }) => import.add(&email, &profile, confidence)?,
            Err(RowError::Rejected { line, reason }) => rejects.add(line, &reason)?,
            Err(RowError::Unreadable(why)) => {
                why_stopped = Some(Failure::file("read", name, why));
                break;
            }
        }
    }
    let imported = import.finish()?;
    progress.finish_and_clear();
    Ok(Outcome { imported, rejected: rejects.count, list: rejects.finish()?, why_stopped })
}

fn unreadable(name: &Path, error: &FileError) -> Failure {
    let failure = Failure::new(format!("{}: {error}", name.display()));
    if let FileError::NoColumn { .. } = error { failure.advise(COLUMNS_ADVICE) } else { failure }
}

const COLUMNS_ADVICE: &str = "--email-column, --url-column and --confidence-column name other columns";

/// Creates the error for an import that stopped after `read` rows.
fn stopped(read: u64, why: Failure) -> Failure {
    let failure = Failure::new(format!("stopped after {} rows: {}", grouped(read), why.what)).exit(why.exit);
    let is_imported =
        if read == 0 { "nothing was imported" } else { "the good ones among these rows are imported" };
    let what_to_do = match why.exit {
        Exit::Interrupted | Exit::Terminated => "run the same command again for the others",
        _ => "repair the file and run the same command again for the others",
    };
    failure.advise(format!("{is_imported}; {what_to_do}"))
}

struct Outcome {
    imported: Imported,
    rejected: u64,
    /// The path of the list of rejected rows, if there are any.
    list: Option<PathBuf>,
    /// The reason, if rows were left unread.
    why_stopped: Option<Failure>,
}

impl Outcome {
    fn read(&self) -> u64 {
        self.imported.changed + self.imported.unchanged + self.rejected
    }

    fn show(&self, format: Format, took: Duration) -> Result<(), Failure> {
        let Imported { changed, unchanged } = self.imported;
        if format.json {
            return output::json(&json!({
                "rows": self.read(),
                "changed": changed,
                "unchanged": unchanged,
                "rejected": self.rejected,
                "rejects": self.list.as_ref().map(|file| file.display().to_string()),
                "stopped": self.why_stopped.as_ref().map(|why| match why.exit {
                    Exit::Interrupted | Exit::Terminated => "interrupted",
                    _ => "unreadable",
                }),
            }));
        }
        output::line(format!(
            "{} rows in {:.1} s: {} new or changed, {} as before, {} rejected",
            grouped(self.read()),
            took.as_secs_f64(),
            grouped(changed),
            grouped(unchanged),
            grouped(self.rejected),
        ))?;
        let Some(list) = &self.list else { return Ok(()) };
        output::line(format!("{} lists the rejected rows, with line and reason", list.display()))
    }

    fn into_result(self, allow_rejects: bool) -> Result<(), Failure> {
        let read = self.read();
        if let Some(why) = self.why_stopped {
            return Err(stopped(read, why));
        }
        if self.rejected == 0 || allow_rejects {
            return Ok(());
        }
        Err(if self.rejected == read {
            Failure::new("every row was rejected, so nothing was imported").advise(COLUMNS_ADVICE)
        } else {
            let (rejected, read) = (grouped(self.rejected), grouped(read));
            let failure =
                Failure::new(format!("{rejected} of {read} rows were rejected; the others are imported"));
            failure.advise("--allow-rejects makes such an import exit with 0")
        })
    }
}

/// Creates a progress bar on stderr, hidden unless stderr is a terminal.
fn progress(bytes: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::no_length(), "{bytes}  {bytes_per_sec}  {elapsed}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
