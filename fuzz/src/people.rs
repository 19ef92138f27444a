//! Fuzzing of the importer with arbitrary files.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use enrich::files::{Columns, FileError, RowError, read_people};
use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::model::ProfileUrl;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// Maximum decompressed size. The importer streams its input, so a decompression bomb would only cost time
/// here.
const TEXT_BYTES_MAX: u64 = 256 * 1_024;

/// Maximum whitespace at the start of a file. The importer treats a file with more as empty.
const BLANK_BYTES_MAX: usize = 64 * 1_024;

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Imports `data` at once, byte by byte, and gzipped. All three must have the same result, unless the gzip is
/// damaged.
pub fn people(data: &[u8]) {
    let text = Text::of(data);
    if text.bytes.len() as u64 > TEXT_BYTES_MAX {
        return;
    }
    let (at_once, byte_by_byte) = (read(data, &text), read(OneByteReader(data), &text));
    if !text.is_damaged {
        assert_eq!(byte_by_byte, at_once, "byte by byte");
    }
    if !data.starts_with(GZIP) {
        assert_eq!(read(&gzipped(data)[..], &text), at_once, "gzipped");
    }
}

/// The decompressed content of a file.
struct Text {
    bytes: Vec<u8>,
    /// The file is a gzip that cannot be read to its end. The amount of data before the damage depends on the
    /// reader.
    is_damaged: bool,
}

impl Text {
    fn of(data: &[u8]) -> Self {
        if !data.starts_with(GZIP) {
            return Self { bytes: data.to_vec(), is_damaged: false };
        }
        let mut bytes = Vec::new();
        let is_damaged = MultiGzDecoder::new(data).take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).is_err();
        Self { bytes, is_damaged }
    }

    fn lines(&self) -> u64 {
        let lines = self.bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() as u64 + 1;
        if self.is_damaged { u64::MAX } else { lines }
    }
}

/// Returns one text per row, or one for the whole file.
fn read(file: impl Read + Send, text: &Text) -> Vec<String> {
    let rows = match read_people(file, &Columns::default()) {
        Ok(rows) => rows,
        Err(error) => return vec![describe_file_error(&error, text)],
    };
    let lines = text.lines();
    let mut results = Vec::new();
    let mut line_before = 0;
    for row in rows {
        match row {
            Ok(person) => {
                assert_eq!(EmailPolicy::default().check(&person.email), Ok(()));
                assert_eq!(ProfileUrl::from_name(person.profile.name()).as_ref(), Ok(&person.profile));
                assert!((0.0..=1.0).contains(&person.confidence), "{}", person.confidence);
                let (email, profile) = (person.email.as_str(), person.profile.name());
                results.push(format!("{email} {profile} {}", person.confidence));
            }
            Err(RowError::Rejected { line, reason }) => {
                assert!((line_before.max(1)..=lines).contains(&line), "line {line} of {lines}");
                assert!(reason.lines().count() == 1, "{reason}");
                check_privacy(&reason, text);
                line_before = line;
                results.push(format!("{line}: {reason}"));
            }
            // The import ends at the first read error.
            Err(RowError::Unreadable(error)) => {
                check_privacy(&error.to_string(), text);
                results.push("unreadable".to_owned());
                break;
            }
        }
        assert!(results.len() as u64 <= TEXT_BYTES_MAX, "more rows than bytes");
    }
    results
}

fn describe_file_error(error: &FileError, text: &Text) -> String {
    let message = error.to_string();
    check_privacy(&message, text);
    match error {
        FileError::Unreadable(_) => "unreadable".to_owned(),
        FileError::Empty => {
            let bytes = &text.bytes[..text.bytes.len().min(BLANK_BYTES_MAX)];
            let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
            assert!(
                bytes.trim_ascii().is_empty() || text.is_damaged,
                "{} is not empty",
                bytes.escape_ascii()
            );
            message
        }
        _ => message,
    }
}

/// Checks that `message` contains no email of `text`. Messages are shown to the operator and written next to
/// the file.
fn check_privacy(message: &str, text: &Text) {
    // An address has no space before its @; the importer's own messages ("an @", "the @") always have one.
    assert!(!message.split(" @").any(|part| part.contains('@')), "{message:?}");
    for email in emails(&String::from_utf8_lossy(&text.bytes)) {
        assert!(!message.contains(email), "{message:?}");
    }
}

/// Returns the words of `text` that are email addresses.
fn emails(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "\",;:<>{}()".contains(c));
    words.filter(|word| Email::parse(word).is_ok()).collect()
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).and_then(|()| gzip.finish()).expect("writing to memory cannot fail")
}

/// A reader that returns one byte at a time.
struct OneByteReader<'a>(&'a [u8]);

impl Read for OneByteReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let some = buf.len().min(1);
        self.0.read(&mut buf[..some])
    }
}
