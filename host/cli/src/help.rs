//! What `--help` shows after the flags of a command.

pub const EXIT_CODES: &str = "\
Exit codes:
  0    Success. For `lookup`: found or not found
  1    The command failed
  2    A flag, an environment variable or a setting is wrong
  3    The service refused the request: 401, 402 or 429
  4    No connection to the server
  130  Interrupted by Ctrl-C
  143  Terminated by SIGTERM";

pub const IMPORT_HELP: &str = "\
The columns of CSV are separated by commas, semicolons or tabs, or by what a first line such as sep=| names.

Rejected rows do not keep the others from being imported, but the exit code is 1 then. The list of them replaces the \
file that --rejects names; it has no emails in it.

Ctrl-C imports the rows that were read so far. A second one ends at once, with some of these rows imported or none. \
Either way, the same command imports the rest: it reads the file from its start, and rows that are imported already stay \
as they are. The exit code is 130, and 143 after SIGTERM.";

pub const BULK_HELP: &str = "\
Added to each row: linkedin_url, status (found, not_found or an error's code) and lookup_id. All else is kept as it \
is, rows and columns in their order; what a spreadsheet would take for a formula is kept too, as it is your data.

Each email is asked for once, however many rows it stands in. Temporary failures and broken connections are tried \
again up to 4 times. If an answer was made and lost on its way, the lookup is repeated, and a match may be billed \
twice; the service bills no failure.

The limit is obeyed: when it is used up, everything waits until the server takes requests again.

With -o, the same command goes on where one stopped. Ctrl-C finishes the lookups in flight, a second one ends at \
once; what is killed loses those lookups, and a loss of power the last second's. Answers that wait for one of an \
earlier row are in OUT.journal until then.

The same command also looks up rows of OUT again whose error was temporary: server_error, lookup_error, \
rate_limit_unavailable and no_answer. --retry-errors includes all other errors. A row that was found or not found is \
never looked up again. The new answers are in OUT.journal until OUT.rewrite, a copy with all answers, replaces OUT.

The exit code is 0 if every row has found or not_found. It is 1 if a row has another status. If the run stopped \
early, it is 3 for a refused key or used-up credits, 4 for a server that cannot be reached, 130 for Ctrl-C, 143 for \
SIGTERM, else 1.";
