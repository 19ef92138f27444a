//! Output of the commands: text and tables by default, JSON with `--json`.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

pub use enrich_store::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};

/// The form of the output: text, or one JSON value.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub json: bool,
}

/// Prints a line to standard output. Ignores a closed pipe, because its reader (such as `head`) needs no more
/// lines.
pub fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    unless_closed(print(text))
}

/// Prints a line that must not be lost. Unlike [`line()`], returns an error if standard output is closed.
pub fn write_line(text: impl AsRef<str>) -> io::Result<()> {
    check_is_open()?;
    print(text)
}

/// Fails if the program was started without standard output.
///
/// The standard library then opens the null device for reading and writing in its place. A shell opens it only
/// for writing, if its user discards the output.
pub fn check_is_open() -> io::Result<()> {
    let stdout = io::stdout();
    let is_null = fstat(&stdout)?.st_rdev == stat("/dev/null")?.st_rdev;
    if is_null && fcntl_getfl(&stdout)?.contains(OFlags::RDWR) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it is closed"));
    }
    Ok(())
}

fn print(text: impl AsRef<str>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", escaped(text.as_ref()))?;
    stdout.flush()
}

/// Converts the result of a write to standard output into the command's result. A closed pipe is not an
/// error.
pub fn unless_closed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritable(&error)),
        _ => Ok(()),
    }
}

/// Creates the error for a failed write to standard output.
pub fn unwritable(error: &io::Error) -> Failure {
    Failure::new(format!("cannot write to standard output: {error}"))
}

/// Makes the text of a server or a store safe to print on a terminal: one line, with control characters
/// escaped.
pub fn printable(text: &str) -> String {
    escaped(&text.trim().replace(['\t', '\n', '\r'], " ")).into_owned()
}

/// Escapes the characters of lines that are not printable, as in JSON. JSON keeps its meaning, because control
/// characters other than white space occur only inside its strings.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_safe = |c: char| is_printable(c) || matches!(c, '\n' | '\t');
    if text.chars().all(is_safe) {
        return text.into();
    }
    let escape = |c: char| if is_safe(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
    text.chars().map(escape).collect::<String>().into()
}

/// Returns whether `c` has no side effects on a terminal. Control characters may change the terminal's state,
/// and bidirectional formatting characters the direction of the text.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a note to stderr, separate from the command's output. Ignores write errors.
pub fn remark(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", without_keys(&escaped(text.as_ref())));
}

/// Abbreviates API keys: one can be in the place of another argument, and the error in a log.
pub fn without_keys(text: &str) -> String {
    let mut parts = text.split("enr_");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let start = if part.starts_with("test_") { "test_".len() } else { 0 };
        let end = part[start..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(part.len(), |n| start + n);
        let (key, rest) = part.split_at(end);
        let (key, mark) = if end - start < 20 { (key, "") } else { (&key[..start + 4], "…") };
        shown.extend(["enr_", key, mark, rest]);
    }
    shown
}

/// Prints an error and its advice to standard error, with `--json` as one object. Each line of `what` is a
/// separate error.
pub fn error(failure: &Failure, is_json: bool) {
    if is_json {
        return remark(json!({ "error": failure.what, "advice": failure.advice }).to_string());
    }
    failure.what.lines().for_each(|line| remark(format!("error: {line}")));
    if let Some(advice) = &failure.advice {
        remark(format!("  {advice}"));
    }
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| Failure::new(format!("cannot print JSON: {e}")))?;
    line(text)
}

/// A list whose rows are printed while they are read: a JSON array, or one line of text for each row. A closed pipe
/// ends the command with [`Exit::Complete`], so that the other rows are not read.
pub struct Rows {
    format: Format,
    count: u64,
}

impl Rows {
    /// Begins the list. `header` is the first line of text.
    pub fn begin(format: Format, header: &str) -> Result<Self, Failure> {
        if !format.json {
            row(header)?;
        }
        Ok(Self { format, count: 0 })
    }

    /// Prints a row.
    pub fn print(
        &mut self,
        value: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.count += 1;
        if !self.format.json {
            return row(text());
        }
        let start = if self.count == 1 { "[" } else { "," };
        row(format!("{start}{}", value()))
    }

    /// Ends the list. Without it, the output is not valid JSON, so that a reader notices that rows are missing.
    pub fn end(self) -> Result<(), Failure> {
        match (self.format.json, self.count) {
            (false, _) => Ok(()),
            (true, 0) => line("[]"),
            (true, _) => line("]"),
        }
    }
}

fn row(text: impl AsRef<str>) -> Result<(), Failure> {
    print(text).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new("standard output is closed").exit(Exit::Complete),
        _ => unwritable(&error),
    })
}

/// Prints a table. Each column is as wide as its widest cell, and each row is one line.
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Failure> {
    let rows = rows.into_iter().map(|row| row.map(|cell| printable(&cell)));
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or_default());
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Creates a progress bar on stderr that starts at `position`. It is hidden unless stderr is a terminal.
pub fn progress(length: Option<u64>, position: u64, style: ProgressStyle) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let bar = bar.with_style(style).with_position(position);
    bar.reset_eta();
    bar
}

/// Parses the template of a progress bar.
pub fn progress_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Formats a number with its unit: `1 row`, `2,000 rows`.
pub fn counted(number: u64, unit: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {unit}{plural}", grouped(number))
}

/// Formats a number of people: `1 person`, `2,000 people`.
pub fn people(number: u64) -> String {
    if number == 1 { "1 person".to_owned() } else { format!("{} people", grouped(number)) }
}

/// Formats a time according to RFC 3339, in UTC. Returns an empty string if the time is out of range.
pub fn rfc3339(time: enrich_lib::model::Timestamp) -> String {
    let ms = i64::try_from(time.unix_ms()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map(|time| time.to_string()).unwrap_or_default()
}

/// Formats a time like [`rfc3339`], in whole seconds.
pub fn second(time: enrich_lib::model::Timestamp) -> String {
    rfc3339(enrich_lib::model::Timestamp::from_unix_ms(time.unix_ms() / 1_000 * 1_000))
}
