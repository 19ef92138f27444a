//! `enrich bulk`: looks up each row of a file.

mod columns;
mod input;
mod lookup;
mod pauses;
mod previous_run;
mod row_result;
mod run;
mod run_id;
mod sink;
mod stop;
mod summary;

use tokio_util::sync::CancellationToken;

use self::columns::Columns;
use self::input::Input;
use self::lookup::LookupClient;
use self::pauses::Pauses;
use self::previous_run::{PreviousRun, RetryPolicy};
pub use self::row_result::RowResult;
use self::run::Run;
use self::run_id::RunId;
use self::sink::{RESUME_ADVICE, Sink};
use self::summary::{Summary, progress};
use crate::args::BulkArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{self, Format, counted};
use crate::path::is_dash;

pub fn run(args: &BulkArgs, format: Format) -> Result<(), Failure> {
    if args.server.access.key_file.as_ref() == Some(&args.file) && is_dash(&args.file) {
        return Err(Failure::usage("FILE and --key-file cannot both be standard input"));
    }
    let http = Client::new(&args.server, args.concurrency.into())?;
    let rows = Input::check(args)?;
    let mut input = Input::open(args)?;
    let columns = Columns::new(input.form(), &args.prefix);
    let retries = if args.retry_errors { RetryPolicy::AllErrors } else { RetryPolicy::Temporary };
    let run_id = RunId::random(input.column.clone(), http.is_test);
    let (mut sink, mut previous, run_id) = match args.output.as_ref().filter(|out| !is_dash(out)) {
        Some(out) => Sink::file(out, args.force, columns, &mut input, retries, run_id)?,
        None => (Sink::stdout(columns, &input)?, PreviousRun::default(), run_id),
    };
    let client = LookupClient {
        http,
        run_id,
        pauses: Pauses::default(),
        held: Pauses::default(),
        has_result: previous.results.values().any(|result| !result.is_error()).into(),
        stop: CancellationToken::new(),
    };
    let summary = Summary::new(previous.kept, std::mem::take(&mut previous.statuses));
    if summary.resumed > 0 {
        output::remark(format!("resuming after {}", counted(summary.resumed, "completed row")));
    }
    if !previous.failed.is_empty() {
        let failed = counted(previous.failed_rows, "row");
        output::remark(format!("retrying {failed} with an error"));
    }
    let progress = progress(rows, summary.resumed, sink.is_stdout());

    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::new(format!("cannot start the async runtime: {e}")))?;
    let mut run = Run::new(client, &mut sink, summary, progress.clone(), args.concurrency.into());
    let stopped = runtime.block_on(run.execute(previous, input));
    progress.finish_and_clear();
    let (stopped, summary) = (stopped?, run.into_summary());
    // All lookups have finished, so the shutdown does not need to wait.
    runtime.shutdown_background();

    let is_resumable = !sink.is_stdout();
    let shown = summary.show(format.json, sink.is_stdout(), stopped.as_ref().map(|stopped| stopped.code));
    let resume_advice = if is_resumable {
        RESUME_ADVICE
    } else {
        "the rows looked up so far are on stdout; use -o OUT to be able to resume a run"
    };
    let stopped = stopped.map(|stopped| (stopped.error, resume_advice));
    summary::failure(&summary, is_resumable, stopped).map_or(shown, Err)
}
