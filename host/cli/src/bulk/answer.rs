//! The answer to a row, and the columns that it adds to the row.

use csv::{ReaderBuilder, StringRecord, WriterBuilder};
use enrich_files::{BadRow, Form};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client;
use crate::output::is_printable;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub linkedin_url: Option<String>,
    /// `found`, `not_found`, or an error's code.
    pub status: String,
    pub lookup_id: Option<String>,
}

/// Statuses of lookups that failed after several attempts and may succeed later.
pub mod temporary {
    pub const SERVER_ERROR: &str = "server_error";
    pub const LOOKUP_ERROR: &str = "lookup_error";
    pub const RATE_LIMIT_UNAVAILABLE: &str = "rate_limit_unavailable";
    /// Set by the client: the connection failed or the response took too long.
    pub const NO_ANSWER: &str = "no_answer";

    pub fn includes(status: &str) -> bool {
        [SERVER_ERROR, LOOKUP_ERROR, RATE_LIMIT_UNAVAILABLE, NO_ANSWER].contains(&status)
    }
}

impl Answer {
    pub fn error(code: &str) -> Self {
        Self { linkedin_url: None, status: code.to_owned(), lookup_id: None }
    }

    pub fn bad(row: &BadRow) -> Self {
        Self::error(row.code)
    }

    /// Parses a response as a final answer (specification 2.2 and 2.3, and status 400 in 7). Returns `None` for any other
    /// response.
    pub fn read(reply: &client::Answer) -> Option<Self> {
        #[derive(Deserialize)]
        struct Body {
            lookup_id: Option<String>,
            status: Option<String>,
            profile: Option<Profile>,
            error: Option<String>,
        }
        #[derive(Deserialize)]
        struct Profile {
            linkedin_url: String,
        }

        let body: Body = serde_json::from_slice(&reply.body).ok()?;
        let result = |linkedin_url, status: &str| {
            let lookup_id = body.lookup_id.clone().filter(|id| is_plain(id))?;
            Some(Self { linkedin_url, status: status.to_owned(), lookup_id: Some(lookup_id) })
        };
        match (reply.status.as_u16(), body.status.as_deref(), body.error.as_deref()) {
            (200, Some("found"), _) => {
                let url = body.profile?.linkedin_url;
                let is_url = is_plain(&url) && (url.starts_with("https://") || url.starts_with("http://"));
                is_url.then(|| result(Some(url), "found"))?
            }
            (404, Some("not_found"), _) => result(None, "not_found"),
            (400, _, Some(code @ ("invalid_request" | "invalid_email" | "unsupported_email"))) => {
                Some(Self::error(code))
            }
            _ => None,
        }
    }

    pub fn is_found(&self) -> bool {
        self.status == "found"
    }

    pub fn is_error(&self) -> bool {
        !matches!(self.status.as_str(), "found" | "not_found")
    }
}

/// Returns whether a text from the server is safe to write to a file: no formula that a spreadsheet would run, and no line
/// breaks or other control characters.
fn is_plain(text: &str) -> bool {
    const CHARS_MAX: usize = 2048;
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.len() <= CHARS_MAX
        && text.chars().all(is_printable)
}

/// The columns that are added to each row.
#[derive(Clone)]
pub struct Columns {
    form: Form,
    names: [String; 3],
}

impl Columns {
    pub fn names(prefix: &str) -> [String; 3] {
        ["linkedin_url", "status", "lookup_id"].map(|name| format!("{prefix}{name}"))
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
    pub fn row_end(&self, text: &[u8], answer: &Answer) -> Vec<u8> {
        let Answer { linkedin_url, status, lookup_id } = answer;
        if let Form::Csv { delimiter } = self.form {
            let [url, id] = [linkedin_url, lookup_id].map(|cell| cell.as_deref().unwrap_or_default());
            return csv_end(delimiter, [url, status, id]);
        }
        let values = [linkedin_url.clone().into(), Value::from(status.as_str()), lookup_id.clone().into()];
        let fields = self.names.iter().zip(values).map(|(name, value)| {
            let name = Value::from(name.as_str());
            format!("{name}:{value}")
        });
        let comma = if text == b"{" { "" } else { "," };
        format!("{comma}{}}}\n", fields.collect::<Vec<_>>().join(",")).into_bytes()
    }

    /// Parses the end of a row that begins with `text`. Returns `None` if [`row_end`](Self::row_end) would write it
    /// differently.
    pub fn read_row_end(&self, text: &[u8], end: &[u8]) -> Option<Answer> {
        let answer = match self.form {
            Form::Csv { delimiter } => Self::read_csv_end(delimiter, end)?,
            Form::JsonLines => self.read_json_end(end)?,
        };
        (self.row_end(text, &answer) == end).then_some(answer)
    }

    fn read_csv_end(delimiter: u8, end: &[u8]) -> Option<Answer> {
        let cells = end.strip_prefix(&[delimiter])?;
        let mut reader = ReaderBuilder::new();
        let mut reader = reader.delimiter(delimiter).has_headers(false).flexible(true).from_reader(cells);
        let mut record = StringRecord::new();
        reader.read_record(&mut record).ok()?;
        let cell = |at| record.get(at).map(str::to_owned);
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Some(Answer { linkedin_url: some(cell(0)?), status: cell(1)?, lookup_id: some(cell(2)?) })
    }

    fn read_json_end(&self, end: &[u8]) -> Option<Answer> {
        let fields = [b"{", end.strip_prefix(b",").unwrap_or(end)].concat();
        let fields: Map<String, Value> = serde_json::from_slice(&fields).ok()?;
        let [url, status, id] =
            self.names.each_ref().map(|name| fields.get(name).and_then(Value::as_str).map(str::to_owned));
        Some(Answer { linkedin_url: url, status: status?, lookup_id: id })
    }
}

fn csv_end(delimiter: u8, cells: [&str; 3]) -> Vec<u8> {
    let mut writer = WriterBuilder::new();
    let mut writer = writer.delimiter(delimiter).buffer_capacity(256).from_writer(vec![delimiter]);
    // Writing to a vector does not fail.
    writer.write_record(cells).ok().and_then(|()| writer.into_inner().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, StatusCode};

    fn reply(status: u16, body: &str) -> Option<Answer> {
        let status = StatusCode::from_u16(status).unwrap();
        Answer::read(&client::Answer { status, headers: HeaderMap::new(), body: body.to_owned().into() })
    }

    const FOUND: &str = r#"{"lookup_id":"lookup_1","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/a,b"}}"#;

    #[test]
    fn what_is_written_is_read_again_in_either_form() {
        let found = reply(200, FOUND).unwrap();
        for form in [Form::Csv { delimiter: b',' }, Form::Csv { delimiter: b';' }, Form::JsonLines] {
            let columns = Columns::new(form, "their \"");
            for answer in [found.clone(), Answer::error("no_email")] {
                for text in [&b"{"[..], b"{\"a\":1"] {
                    let end = columns.row_end(text, &answer);
                    assert_eq!(columns.read_row_end(text, &end), Some(answer.clone()));
                    assert_eq!(columns.read_row_end(text, &end[1..]), None);
                }
            }
        }
    }

    #[test]
    fn a_reply_of_something_else_is_no_answer() {
        for (status, body) in [
            (200, "<html>"),
            (200, r#"{"lookup_id":"1","status":"found"}"#),
            (200, &FOUND.replace("https:", "=https:")),
            (200, &FOUND.replace("lookup_1", "=cmd()")),
            (404, r#"{"error":"invalid_request"}"#),
            (400, r#"{"error":"ada@gmail.com"}"#),
            (403, FOUND),
        ] {
            assert_eq!(reply(status, body), None, "{status} {body}");
        }
    }
}
