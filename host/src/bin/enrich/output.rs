//! How answers are printed: tables for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints a line to stdout. Whoever closed it does not want it.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(io::stdout(), "{}", text.as_ref());
}

/// Prints a remark to stderr, out of the way of the answer.
pub fn remark(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}

/// Prints an error and its advice to stderr. Each line of `what` is a separate error.
pub fn error(failure: &Failure) {
    failure.what.lines().for_each(|line| remark(format!("error: {line}")));
    if let Some(advice) = &failure.advice {
        remark(format!("  {advice}"));
    }
}

pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| Failure::new(format!("can't print JSON: {e}")))?;
    line(text);
    Ok(())
}

/// Prints columns, as wide as their widest cell.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or_default());
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

/// 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment as RFC 3339 has it, in UTC.
pub fn rfc3339(time: enrich_lib::model::Timestamp) -> String {
    let ms = i64::try_from(time.unix_ms()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
