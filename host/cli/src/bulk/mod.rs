//! `enrich bulk`: looks up each row of a file.
//!
//! - `run`: the main loop, which reads rows, looks up new emails and writes rows in input order
//! - `ask`: the lookup of one email, with retries
//! - `pace`: the client-side rate limit
//! - `input`: the input rows
//! - `sink`: the output
//! - `done`, `journal`: the rows and answers of an earlier run
//! - `answer`: the added columns
//! - `summary`: progress and summary

mod answer;
mod ask;
mod done;
mod input;
mod journal;
mod pace;
mod run;
mod sink;
mod summary;

use std::path::Path;

use self::answer::Columns;
use self::ask::Asker;
use self::done::{Done, Retries};
use self::input::Input;
use self::pace::Pace;
use self::run::{Run, Stopped};
use self::sink::Sink;
use self::summary::{Summary, progress};
use crate::args::BulkArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::output;

pub fn run(args: &BulkArgs) -> Result<(), Failure> {
    if args.server.key_file.as_ref() == Some(&args.file) && args.file == Path::new("-") {
        return Err(Failure::usage("FILE and --key-file cannot both be standard input"));
    }
    let asker = Asker { client: Client::new(&args.server)?, pace: Pace::default(), stop: Default::default() };
    let rows = Input::check(args)?;
    let mut input = Input::open(args)?;
    let columns = Columns::new(input.form(), &args.prefix);
    let retries = if args.retry_errors { Retries::All } else { Retries::Temporary };
    let (mut sink, mut done) = match &args.output {
        Some(out) => Sink::file(out, args.force, columns, &mut input, retries)?,
        None => (Sink::stdout(columns, input.header())?, Done::default()),
    };
    let statuses = std::mem::take(&mut done.statuses);
    let summary = Summary::new(statuses);
    if summary.resumed > 0 {
        output::remark(format!("{} rows are done already", output::grouped(summary.resumed)));
    }
    if !done.failed.is_empty() {
        let failed = output::grouped(done.failed.len() as u64);
        output::remark(format!("{failed} rows with an error are looked up again"));
    }
    let progress = progress(rows, summary.resumed, sink.is_stdout());

    let runtime = tokio::runtime::Runtime::new().map_err(|e| Failure::new(format!("can't start: {e}")))?;
    let mut run = Run::new(asker, &mut sink, summary, progress.clone(), args.concurrency.into());
    let stopped = runtime.block_on(run.go(done, input));
    progress.finish_and_clear();
    let (stopped, summary) = (stopped?, run.into_summary());
    // All lookups have finished, so the shutdown does not need to wait.
    runtime.shutdown_background();

    let is_resumable = !sink.is_stdout();
    let shown =
        summary.show(args.format.json, sink.is_stdout(), stopped.as_ref().map(|stopped| stopped.code));
    let how_to_go_on = if is_resumable {
        "the same command goes on where this stopped"
    } else {
        "what was answered is on stdout; with -o OUT, the same command would go on where this stopped"
    };
    let stopped = stopped.map(|stopped: Stopped| (stopped.why, how_to_go_on));
    summary::failure(&summary, is_resumable, stopped).map_or(shown, Err)
}

/// Returns the email in lower case. Emails that differ only in case are looked up once.
fn key(email: &str) -> String {
    email.to_lowercase()
}
