//! The input rows of `enrich bulk`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::files::{FileError, Form, Table, TableError, TableRow};
use tokio::sync::mpsc;

use super::columns::Columns;
use crate::args::BulkArgs;
use crate::failure::Failure;
use crate::path::is_dash;

pub struct Input {
    pub path: PathBuf,
    /// The column with the email. In lower case for CSV, which ignores the case of names.
    pub column: String,
    table: Table<'static>,
}

impl Input {
    pub fn open(args: &BulkArgs) -> Result<Self, Failure> {
        let path = &args.file;
        let file: Box<dyn Read + Send> = if is_dash(path) {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).map_err(|e| Failure::file("read", path, e))?)
        };
        let table = Table::read(file, &args.column, &Columns::names(&args.prefix));
        let table = table.map_err(|error| unreadable(path, &error))?;
        let column = match table.form() {
            Form::Csv { .. } => args.column.to_ascii_lowercase(),
            Form::JsonLines => args.column.clone(),
        };
        Ok(Self { path: path.clone(), column, table })
    }

    /// Reads the whole file before the first lookup, so that an unreadable row fails the run before it costs
    /// credits. Returns the number of rows, or `None` for stdin and special files, which may be readable only
    /// once.
    pub fn check(args: &BulkArgs) -> Result<Option<u64>, Failure> {
        if is_dash(&args.file) || std::fs::metadata(&args.file).is_ok_and(|meta| !meta.is_file()) {
            return Ok(None);
        }
        let mut rows = 0;
        for row in Self::open(args)? {
            row?;
            rows += 1;
        }
        Ok(Some(rows))
    }

    /// Reads rows on a separate thread, because reading blocks and stdin may be slow.
    pub fn read_on_a_thread(self) -> mpsc::Receiver<Result<TableRow, Failure>> {
        // At most 16 MiB.
        const ROWS_READ_AHEAD_MAX: usize = 16;
        let (sender, rows) = mpsc::channel(ROWS_READ_AHEAD_MAX);
        std::thread::spawn(move || {
            for row in self {
                if sender.blocking_send(row).is_err() {
                    return;
                }
            }
        });
        rows
    }

    pub fn form(&self) -> Form {
        self.table.form()
    }

    pub fn header(&self) -> Option<&[u8]> {
        self.table.header()
    }
}

impl Iterator for Input {
    type Item = Result<TableRow, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.table.next()?.map_err(|error| unreadable(&self.path, &error)))
    }
}

/// Creates the error for a file that cannot be read, with advice.
fn unreadable(path: &Path, error: &TableError) -> Failure {
    let name = if is_dash(path) { "stdin".into() } else { path.display().to_string() };
    let failure = Failure::new(format!("{name}: {error}"));
    match error {
        TableError::File(FileError::NoColumn { present, .. }) => {
            let has_unknown_delimiter = present.len() == 1 && present[0].contains('|');
            failure.advise(if has_unknown_delimiter {
                "separate the columns with commas, semicolons or tabs, or name the delimiter in a first line such as sep=|"
            } else {
                "set --column to the column with the email"
            })
        }
        TableError::Taken { .. } => failure.advise("use --prefix TEXT to rename the added columns"),
        _ => failure,
    }
}
