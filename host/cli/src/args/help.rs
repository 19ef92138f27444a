//! Texts that `--help` shows after the options.

pub const EXIT_CODES: &str = "\
Exit codes:
  0    Success; for `lookup`, found or not found
  1    The command failed
  2    A flag, an environment variable or a setting is invalid
  3    The service refused the request: 401, 402 or 429
  4    The server could not be reached
  129  The terminal was closed (SIGHUP)
  130  Interrupted by SIGINT (Ctrl-C)
  143  Terminated by SIGTERM";

pub const IMPORT: &str = "\
CSV columns are separated by commas, semicolons or tabs, or by the delimiter in a first line such as `sep=|`.

Invalid rows are rejected individually: the other rows are imported, and the exit code is 1. The list of rejected rows \
replaces the file at --rejects. It contains no emails.

Ctrl-C imports the rows read so far and exits with 130 (SIGTERM: 143). A second Ctrl-C exits at once; any number of \
these rows may then be imported. To import the rest, run the same command again: it reads the file from the start and \
leaves imported rows unchanged.

With --database, people who opted out on any node are skipped.";

pub const BULK: &str = "\
Each row receives four columns: linkedin_url, status (found, not_found or an error code), lookup_id and reason (of an \
error). Everything else is copied unchanged, including cells that a spreadsheet would run as formulas.

Each distinct email is looked up once. Temporary errors and broken connections are retried up to 4 times, with the \
same idempotency key, so that a match is billed once. Failures are never billed.

The command respects the burst limit of the server and pauses while it is used up.

With -o, run the same command again to continue an interrupted run. Ctrl-C completes the lookups in flight; a second \
Ctrl-C exits at once. The next run repeats the lookups whose rows are not in OUT, with the same idempotency keys, so \
that no match is billed twice within 24 hours. OUT.run has the id of the run, from which the keys are derived. \
Keep it as long as OUT: it also has --column and the kind of the API key, and a run with others is refused.

A run with -o also repeats the rows of OUT with a temporary error: server_error, lookup_error, \
rate_limit_unavailable, no_answer and unexpected_response. --retry-errors repeats all rows with an error. Rows with \
found or not_found are never repeated. OUT.rewrite is the new version of OUT meanwhile.

The exit code is 0 if every row is found or not_found, and 1 if a row has another status. If the run stops early, it \
is 3 for a refused key or used-up credits, 4 for an unreachable server, 129 for SIGHUP, 130 for Ctrl-C, 143 \
for SIGTERM, and 1 otherwise.";

pub const CONFORM: &str = "\
Sends the requests of the transcripts that define the interface, and compares the replies: status, headers, body, counts of the \
burst limit, and that all 401 replies are equal. What needs data that is not given is skipped with the reason.

No other client may use the workspaces meanwhile. Requests wait while the burst limit admits none, except those of the workspace \
with a low limit, whose window is used up. A match is billed as usual, at most 100 of them.

The exit code is 0 if all replies conform, 1 if one differs, 3 if the server does not accept a key, and 4 if it cannot be reached.";
