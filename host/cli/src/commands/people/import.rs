//! `enrich people import`: imports people from a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::files::{Columns, FileError, Person, RowError, Rows, read_people};
use enrich_store::{Imported, RefusedRemoval};
use indicatif::ProgressBar;
use serde_json::json;

use super::input::Input;
use super::rejects::Rejects;
use crate::args::ImportArgs;
use crate::directory::{Directory, Import};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, counted, grouped};
use crate::path::is_dash;
use crate::private_file::with_name_suffix;
use crate::signals;

/// Imports a file. `open` creates the directory if it is missing. It is called only if something is imported,
/// so that an import that fails leaves no new directory.
pub fn import(
    open: impl FnOnce() -> Result<Directory, Failure>,
    args: ImportArgs,
    format: Format,
) -> Result<(), Failure> {
    let started = Instant::now();
    let allow_rejects = args.allow_rejects;
    let outcome = run(open, args)?;
    let shown = outcome.show(format, started.elapsed());
    outcome.into_result(allow_rejects).and(shown)
}

/// Imports all rows, or only the rows before a signal or a read error.
fn run(open: impl FnOnce() -> Result<Directory, Failure>, args: ImportArgs) -> Result<Outcome, Failure> {
    let is_stdin = is_dash(&args.file);
    let name = if is_stdin { Path::new("stdin") } else { &args.file };
    let (file, bytes): (Box<dyn Read + Send>, _) = if is_stdin {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(name).map_err(|e| Failure::file("read", name, e))?;
        let bytes = file.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len());
        (Box::new(file), bytes)
    };
    let list = args.rejects.unwrap_or_else(|| with_name_suffix(name, ".rejects.csv"));
    let rejects = Rejects::new(list, &args.file)?;
    let progress = progress(bytes);
    let (input, stop) = Input::new(progress.wrap_read(file));
    let first = Arc::new(OnceLock::new());
    signals::watch({
        let (first, progress) = (first.clone(), progress.clone());
        move |exit| {
            let remark = match first.set(First::Signal(exit)) {
                Ok(()) => "importing the rows read so far",
                Err(_) => "all rows are written, and other people are being removed",
            };
            stop.stop();
            let exit_now = "press Ctrl-C again to exit immediately";
            progress.suspend(|| output::remark(format!("{remark}; {exit_now}")));
        }
    })?;
    let interruption = || match first.get() {
        Some(First::Signal(exit)) => Some(Failure::new("interrupted").exit(*exit)),
        Some(First::Removal) | None => None,
    };

    let columns =
        Columns { email: args.email_column, url: args.url_column, confidence: args.confidence_column };
    let rows = read_people(input, &columns).map_err(|error| {
        interruption().map_or_else(|| unreadable(name, &error), |reason| stopped(0, reason))
    })?;
    let mut rows = ValidRows { rows, rejects, interruption, stop_reason: None, valid: 0, name };
    let mut next = rows.next()?;
    let fails = rows.stop_reason.is_some() || rows.rejects.count > 0 && !args.allow_rejects;
    let imported = if next.is_none() && fails {
        Imported::default()
    } else {
        let fill = async |import: &mut Import<'_>| {
            while let Some(person) = next.take() {
                import.add(&person).await?;
                next = rows.next()?;
            }
            // People whose rows were not read or rejected would be removed.
            Ok(rows.stop_reason.is_none() && (rows.rejects.count == 0 || args.allow_rejects))
        };
        let may_remove = {
            let first = first.clone();
            move || first.set(First::Removal).is_ok()
        };
        open()?.import(args.replace.then_some(args.remove_up_to), fill, may_remove)?
    };
    progress.finish_and_clear();
    if args.replace && rows.stop_reason.is_none() && imported.refused.is_none() {
        rows.stop_reason = (rows.interruption)();
    }
    let ValidRows { rejects, stop_reason, valid, .. } = rows;
    let rejected = rejects.count;
    Ok(Outcome { imported, read: valid + rejected, rejected, list: rejects.finish(), stop_reason })
}

/// The first of two events: other people are removed only if no signal came before.
enum First {
    Signal(Exit),
    Removal,
}

/// The valid rows of a file. Lists the others.
struct ValidRows<'a, F> {
    rows: Rows<'a>,
    rejects: Rejects,
    interruption: F,
    /// The reason why the rows ended before the end of the file.
    stop_reason: Option<Failure>,
    /// The number of valid rows.
    valid: u64,
    name: &'a Path,
}

impl<F: Fn() -> Option<Failure>> ValidRows<'_, F> {
    fn next(&mut self) -> Result<Option<Person>, Failure> {
        for row in self.rows.by_ref() {
            self.stop_reason = (self.interruption)();
            if self.stop_reason.is_some() {
                break;
            }
            match row {
                Ok(person) => {
                    self.valid += 1;
                    return Ok(Some(person));
                }
                Err(RowError::Rejected { line, reason }) => self.rejects.add(line, &reason),
                Err(RowError::Unreadable(error)) => {
                    self.stop_reason = Some(unreadable(self.name, &error));
                    break;
                }
            }
        }
        Ok(None)
    }
}

fn unreadable(name: &Path, error: &FileError) -> Failure {
    let failure = Failure::new(format!("{}: {error}", name.display()));
    if let FileError::NoColumn { .. } = error { failure.advise(COLUMNS_ADVICE) } else { failure }
}

const COLUMNS_ADVICE: &str = "set other columns with --email-column, --url-column and --confidence-column";

/// Creates the error for an import that stopped after `read` rows.
fn stopped(read: u64, reason: Failure) -> Failure {
    let what = format!("stopped after {}: {}", counted(read, "row"), reason.what);
    let imported = if read == 0 { "nothing was imported" } else { "the valid rows among these are imported" };
    let next_step = match reason.exit {
        Exit::Interrupted | Exit::Terminated => "run the same command again to import the rest",
        _ => "repair the file and run the same command again to import the rest",
    };
    Failure::new(what).exit(reason.exit).advise(format!("{imported}; {next_step}"))
}

struct Outcome {
    imported: Imported,
    /// The number of rows.
    read: u64,
    rejected: u64,
    /// The path of the list of rejected rows, if there are any.
    list: Option<PathBuf>,
    /// The reason why the import stopped before the end of the file.
    stop_reason: Option<Failure>,
}

impl Outcome {
    fn show(&self, format: Format, elapsed: Duration) -> Result<(), Failure> {
        let Imported { changed, unchanged, removed, refused } = self.imported;
        if format.json {
            return output::json(&json!({
                "rows": self.read,
                "changed": changed,
                "unchanged": unchanged,
                "removed": removed,
                "not_removed": refused.map_or(0, |refused| refused.people),
                "rejected": self.rejected,
                "rejects": self.list.as_ref().map(|file| file.display().to_string()),
                "stopped": self.stop_reason.as_ref().map(|reason| match reason.exit {
                    Exit::Interrupted | Exit::Terminated => "interrupted",
                    _ => "unreadable",
                }),
            }));
        }
        output::line(format!(
            "{} in {:.1} s: {} new or changed, {} unchanged, {} rejected{}",
            counted(self.read, "row"),
            elapsed.as_secs_f64(),
            grouped(changed),
            grouped(unchanged),
            grouped(self.rejected),
            if removed == 0 { String::new() } else { format!(", {} removed", output::people(removed)) },
        ))?;
        let Some(list) = &self.list else { return Ok(()) };
        output::line(format!("rejected rows are listed in {} with line and reason", list.display()))
    }

    fn into_result(self, allow_rejects: bool) -> Result<(), Failure> {
        if let Some(reason) = self.stop_reason {
            return Err(stopped(self.read, reason));
        }
        if let Some(RefusedRemoval { people, of }) = self.imported.refused {
            let what = format!(
                "--replace would remove {} of {}, more than --remove-up-to allows; nothing was changed",
                grouped(people),
                output::people(of)
            );
            let advice = format!("check that the file is complete, or allow it with --remove-up-to {people}");
            return Err(Failure::new(what).advise(advice));
        }
        if self.rejected == 0 || allow_rejects {
            return Ok(());
        }
        Err(if self.rejected == self.read {
            Failure::new("every row was rejected, so nothing was imported").advise(COLUMNS_ADVICE)
        } else {
            let (rejected, read) = (grouped(self.rejected), grouped(self.read));
            let failure =
                Failure::new(format!("{rejected} of {read} rows were rejected; the others are imported"));
            failure.advise("use --allow-rejects to exit with 0 despite rejected rows")
        })
    }
}

/// Creates the progress bar of an import.
fn progress(bytes: Option<u64>) -> ProgressBar {
    let template = match bytes {
        Some(_) => "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
        None => "{bytes}  {bytes_per_sec}  {elapsed}",
    };
    output::progress(bytes, 0, output::progress_style(template))
}
