//! `enrich people`

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use enrich_host::SystemArrivals;
use enrich_host::rows::{Columns, FileFault, Person, RowFault, Rows};
use enrich_lib::email::Email;
use enrich_sqlite::{DataDir, People, Stats};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::{Format, ImportArgs, PeopleCommand};
use crate::failure::Failure;
use crate::output;

pub fn run(data: PathBuf, command: PeopleCommand) -> Result<(), Failure> {
    match command {
        PeopleCommand::Import(args) => import(&open(&DataDir::create(data)?)?, args),
        PeopleCommand::Suppress { email, format } => suppress(&open(&DataDir::open(data)?)?, &email, format),
        PeopleCommand::Stats { format } => stats(open(&DataDir::open(data)?)?.stats()?, format),
    }
}

fn open(dir: &DataDir) -> Result<People, Failure> {
    Ok(People::open(dir, People::CONFIDENCE_MIN, rand::random())?)
}

fn suppress(people: &People, email: &str, format: Format) -> Result<(), Failure> {
    let email = Email::parse(email.trim()).map_err(|fault| Failure::usage(fault.to_string()))?;
    people.suppress(&email, SystemArrivals::now())?;
    if format.json {
        return output::json(&json!({ "suppressed": true }));
    }
    output::line("suppressed: within a second they are not found, and no import brings them back")
}

fn stats(stats: Stats, format: Format) -> Result<(), Failure> {
    let Stats { people, untrusted, suppressed } = stats;
    if format.json {
        return output::json(&json!({ "people": people, "untrusted": untrusted, "suppressed": suppressed }));
    }
    output::table(
        ["PEOPLE", "UNTRUSTED", "SUPPRESSED"],
        [[people, untrusted, suppressed].map(output::grouped)],
    )
}

fn import(people: &People, args: ImportArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let file = File::open(&args.file).map_err(|e| Failure::file("read", &args.file, e))?;
    let progress = progress(file.metadata().map_or(0, |meta| meta.len()));
    let columns =
        Columns { email: args.email_column, url: args.url_column, confidence: args.confidence_column };
    let rows = Rows::read(progress.wrap_read(file), &columns).map_err(|fault| {
        let failure = Failure::new(format!("{}: {fault}", args.file.display()));
        if let FileFault::NoColumn { .. } = fault { failure.advise(COLUMNS_ADVICE) } else { failure }
    })?;
    let mut rejects = Rejects::new(args.rejects.unwrap_or_else(|| beside(&args.file)));

    let mut import = people.import()?;
    for row in rows {
        match row {
            Ok(Person { email, profile, confidence }) => import.add(&email, &profile, confidence)?,
            Err(RowFault::Unreadable(why)) => return Err(Failure::file("read", &args.file, why)),
            Err(RowFault::Rejected { line, reason }) => rejects.add(line, &reason)?,
        }
    }
    let imported = import.finish()?;
    progress.finish_and_clear();
    let rejected = rejects.finish()?;

    let read = imported.changed + imported.unchanged + rejected.count;
    if args.format.json {
        output::json(&json!({
            "rows": read,
            "changed": imported.changed,
            "unchanged": imported.unchanged,
            "rejected": rejected.count,
            "rejects": rejected.file.as_ref().map(|file| file.display().to_string()),
        }))?;
    } else {
        output::line(format!(
            "{} rows in {:.1} s: {} new or changed, {} as before, {} rejected",
            output::grouped(read),
            started.elapsed().as_secs_f64(),
            output::grouped(imported.changed),
            output::grouped(imported.unchanged),
            output::grouped(rejected.count),
        ))?;
    }
    match rejected.file {
        Some(file) if rejected.count == read => {
            Err(Failure::new(format!("every row was rejected: {} says why", file.display()))
                .advise(COLUMNS_ADVICE))
        }
        Some(file) => {
            output::remark(format!("{} says which rows were rejected, and why", file.display()));
            Ok(())
        }
        None => Ok(()),
    }
}

const COLUMNS_ADVICE: &str = "--email-column, --url-column and --confidence-column name other columns";

/// A bar on a terminal, nothing elsewhere.
fn progress(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
    );
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".rejects.csv");
    file.with_file_name(name)
}

/// The file of bad rows: made with the first of them. It names their lines and never repeats what is in them.
struct Rejects {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    count: u64,
}

struct Rejected {
    count: u64,
    file: Option<PathBuf>,
}

impl Rejects {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, count: 0 }
    }

    fn add(&mut self, line: u64, reason: &str) -> Result<(), Failure> {
        self.write(line, reason).map_err(|e| Failure::file("write", &self.path, e))
    }

    fn write(&mut self, line: u64, reason: &str) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = self.file.insert(BufWriter::new(File::create(&self.path)?));
                writeln!(file, "line,reason")?;
                file
            }
        };
        self.count += 1;
        writeln!(file, "{line},\"{}\"", reason.replace('"', "\"\""))
    }

    fn finish(self) -> Result<Rejected, Failure> {
        let Some(mut file) = self.file else { return Ok(Rejected { count: 0, file: None }) };
        file.flush().map_err(|e| Failure::file("write", &self.path, e))?;
        Ok(Rejected { count: self.count, file: Some(self.path) })
    }
}
