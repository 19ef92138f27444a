//! The columns that `bulk` adds to each row, in CSV and JSON Lines.

use crate::files::Form;
use csv::{ReaderBuilder, StringRecord, WriterBuilder};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::row_result::RowResult;

/// The columns that are added to each row.
#[derive(Clone)]
pub struct Columns {
    form: Form,
    names: [String; 4],
}

impl Columns {
    pub fn names(prefix: &str) -> [String; 4] {
        ["linkedin_url", "status", "lookup_id", "reason"].map(|name| format!("{prefix}{name}"))
    }

    pub fn new(form: Form, prefix: &str) -> Self {
        Self { form, names: Self::names(prefix) }
    }

    /// Returns the text to append to the header.
    pub fn header_end(&self) -> Vec<u8> {
        let Form::Csv { delimiter } = self.form else { return Vec::new() };
        csv_end(delimiter, self.names.each_ref().map(String::as_str))
    }

    /// Returns the text to append to a row that begins with `text`.
    pub fn row_end(&self, text: &[u8], result: &RowResult) -> Vec<u8> {
        let RowResult { linkedin_url, status, lookup_id, reason } = result;
        let cells = [linkedin_url.as_deref(), Some(status.as_str()), lookup_id.as_deref(), reason.as_deref()];
        if let Form::Csv { delimiter } = self.form {
            return csv_end(delimiter, cells.map(Option::unwrap_or_default));
        }
        let values = cells.map(Value::from);
        let fields = self.names.iter().zip(values).map(|(name, value)| {
            let name = Value::from(name.as_str());
            format!("{name}:{value}")
        });
        let comma = if text == b"{" { "" } else { "," };
        format!("{comma}{}}}\n", fields.collect::<Vec<_>>().join(",")).into_bytes()
    }

    /// Returns whether a truncated [`row_end`](Self::row_end) of a row that begins with `text` can be `end`. Text after
    /// the last cell of CSV could be a part of it.
    pub fn is_truncated_row_end(&self, text: &[u8], end: &[u8]) -> bool {
        let is_start = |start: &[u8]| start.iter().zip(end).all(|(a, b)| a == b);
        let Form::Csv { delimiter } = self.form else {
            let comma = if text == b"{" { "" } else { "," };
            let start = format!("{comma}{}:", Value::from(self.names[0].as_str()));
            let fields = [b"{", end.strip_prefix(b",").unwrap_or(end)].concat();
            let mut objects = serde_json::Deserializer::from_slice(&fields).into_iter::<IgnoredAny>();
            let is_cut = match objects.next() {
                Some(Err(error)) => error.is_eof(),
                _ => objects.byte_offset() == fields.len(),
            };
            return is_start(start.as_bytes()) && is_cut;
        };
        // A quoted cell may contain the delimiter.
        let delimiters = end.iter().filter(|byte| **byte == delimiter).count();
        is_start(&[delimiter]) && (delimiters <= self.names.len() || end.contains(&b'"'))
    }

    /// Parses the end of a row that begins with `text`. Returns `None` if [`row_end`](Self::row_end) would
    /// write it differently.
    pub fn parse_row_end(&self, text: &[u8], end: &[u8]) -> Option<RowResult> {
        let result = match self.form {
            Form::Csv { delimiter } => Self::parse_csv_end(delimiter, end)?,
            Form::JsonLines => self.parse_json_end(end)?,
        };
        (self.row_end(text, &result) == end).then_some(result)
    }

    fn parse_csv_end(delimiter: u8, end: &[u8]) -> Option<RowResult> {
        let cells = end.strip_prefix(&[delimiter])?;
        let mut reader = ReaderBuilder::new();
        let mut reader = reader.delimiter(delimiter).has_headers(false).flexible(true).from_reader(cells);
        let mut record = StringRecord::new();
        reader.read_record(&mut record).ok()?;
        let cell = |index| record.get(index).map(str::to_owned);
        let non_empty = |text: String| Some(text).filter(|text| !text.is_empty());
        Some(RowResult {
            linkedin_url: non_empty(cell(0)?),
            status: cell(1)?,
            lookup_id: non_empty(cell(2)?),
            reason: non_empty(cell(3)?),
        })
    }

    fn parse_json_end(&self, end: &[u8]) -> Option<RowResult> {
        let fields = [b"{", end.strip_prefix(b",").unwrap_or(end)].concat();
        let fields: Map<String, Value> = serde_json::from_slice(&fields).ok()?;
        let [url, status, id, reason] =
            self.names.each_ref().map(|name| fields.get(name).and_then(Value::as_str).map(str::to_owned));
        Some(RowResult { linkedin_url: url, status: status?, lookup_id: id, reason })
    }
}

fn csv_end(delimiter: u8, cells: [&str; 4]) -> Vec<u8> {
    let mut writer = WriterBuilder::new();
    let mut writer = writer.delimiter(delimiter).buffer_capacity(256).from_writer(vec![delimiter]);
    // Writing to a vector does not fail.
    writer.write_record(cells).ok().and_then(|()| writer.into_inner().ok()).unwrap_or_default()
}
