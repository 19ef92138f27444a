//! The decompressed text of a file, and its format, which the first line determines.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::GzDecoder;
use thiserror::Error;

/// An error that affects the whole file.
#[derive(Debug, Error)]
pub enum FileError {
    /// Reading failed, or the gzip data is damaged.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is not UTF-8 text, but a workbook or an image, for example. The field names the type.
    #[error("the file is {0}, not CSV or JSON Lines; save it as CSV (UTF-8) and use that file")]
    NotText(&'static str),
    /// The first row contains a person instead of a header. The message does not quote it.
    #[error("expected a header row, found an email; add a first row that names the columns")]
    NoHeader,
    /// A column is missing.
    #[error("there is no column {missing}; the columns are {}", .present.join(", "))]
    NoColumn {
        /// Name of the missing column.
        missing: String,
        /// Names in the header.
        present: Vec<String>,
    },
    /// A column is not unique.
    #[error("there are several columns {0}; rename all but one")]
    SeveralColumns(String),
    /// The file is one JSON array.
    #[error(
        "the file is a JSON array; JSON Lines is expected, one object on each line, as `jq --compact-output '.[]'` prints it"
    )]
    JsonArray,
    /// The first line is only a part of a JSON object.
    #[error(
        "the file is indented JSON; JSON Lines is expected, one object on each line, as `jq --compact-output .` prints it"
    )]
    IndentedJson,
    /// A quote is never closed, so that the rest of the file would be one cell.
    #[error(
        "line {row}: the quote that opens in this row is never closed; close it, because the rows after it cannot be parsed"
    )]
    OpenQuote {
        /// The line on which the row starts.
        row: u64,
    },
    /// A quoted cell ends with a quote and more text.
    #[error(
        "line {row}: text follows a closing quote in line {line}; double the quotes in a quoted cell, and remove a stray one"
    )]
    TextAfterQuote {
        /// The line on which the row starts.
        row: u64,
        /// The line of the closing quote.
        line: u64,
    },
    /// A row exceeds a limit.
    #[error("line {row}: the row {limit}; check for a missing quote")]
    TooLong {
        /// The line on which the row starts.
        row: u64,
        /// The limit that the row exceeds.
        limit: &'static str,
    },
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 4180, with a header.
    Csv {
        /// The byte between two cells: the most frequent of comma, semicolon and tab in the header, or the
        /// delimiter named by a `sep=;` line before it.
        delimiter: u8,
    },
    /// One object per line.
    JsonLines,
}

/// The text of a file.
pub(crate) struct Text<'a> {
    pub(crate) form: Form,
    /// The bytes before the CSV header: a byte order mark, a `sep=;` line, both or neither.
    pub(crate) prefix: Vec<u8>,
    /// The number of the line at which `bytes` start.
    pub(crate) line: u64,
    /// The text without the prefix.
    pub(crate) bytes: Box<dyn Read + Send + 'a>,
}

impl<'a> Text<'a> {
    pub(crate) fn open(mut file: impl Read + Send + 'a) -> Result<Self, FileError> {
        let mut magic = Vec::new();
        file.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
        let is_gzip = magic == GZIP;
        let file = Cursor::new(magic).chain(file);
        let mut text: BufReader<Box<dyn Read + Send + 'a>> =
            BufReader::new(if is_gzip { Box::new(Gzip::new(file)) } else { Box::new(file) });

        let start = read_start(&mut text)?;
        if let Some(what) = not_text(&start) {
            return Err(FileError::NotText(what));
        }
        let header = unmarked(&start);
        let mark = &start[..start.len() - header.len()];
        if let Some(delimiter) = separator_line(header) {
            let prefix = [mark, b"sep=", &[delimiter], b"\n"].concat();
            let line = 1 + header.iter().filter(|byte| **byte == b'\n').count() as u64;
            return Ok(Self { form: Form::Csv { delimiter }, prefix, line, bytes: Box::new(text) });
        }
        let form = match header.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Err(FileError::Empty),
            Some(b'[') => return Err(FileError::JsonArray),
            Some(b'{') if header.ends_with(b"\n") => return Err(FileError::IndentedJson),
            Some(b'{') => Form::JsonLines,
            Some(_) => Form::Csv { delimiter: delimiter(header) },
        };
        let (prefix, bytes) = (mark.to_vec(), Cursor::new(header.to_vec()).chain(text));
        Ok(Self { form, prefix, line: 1, bytes: Box::new(bytes) })
    }
}

/// Decompresses all members of a gzip file. Ignores zeros after a member, with which tapes are padded.
struct Gzip<R>(Option<GzDecoder<BufReader<R>>>);

impl<R: Read> Gzip<R> {
    fn new(file: R) -> Self {
        Self(Some(GzDecoder::new(BufReader::new(file))))
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let bytes = member.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            skip_zeros(member.get_mut())?;
            let is_end = member.get_mut().fill_buf()?.is_empty();
            self.0 = self.0.take().filter(|_| !is_end).map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

fn skip_zeros(file: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = file.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        file.consume(zeros);
        if zeros == 0 {
            return Ok(());
        }
    }
}

/// The byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns `start` without a byte order mark.
pub(crate) fn unmarked(start: &[u8]) -> &[u8] {
    start.strip_prefix(MARK).unwrap_or(start)
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// The longest first line that is examined, with the blanks before it, in bytes.
const START_BYTES_MAX: usize = 64 * 1024;

/// Reads `text` through its first line that is not blank. For JSON, stops after the first byte that is not blank behind
/// the first bracket, or at the end of that line.
///
/// Reads byte by byte, so that the result does not depend on the chunk sizes in which a pipe delivers the
/// text.
fn read_start(text: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let mut quotes = Quotes::default();
    let (mut is_blank, mut is_json) = (true, false);
    for byte in text.bytes().take(START_BYTES_MAX) {
        let byte = byte?;
        start.push(byte);
        if MARK.starts_with(&start) {
            continue;
        }
        if is_json && (byte == b'\n' || !byte.is_ascii_whitespace()) {
            break;
        }
        is_json |= is_blank && matches!(byte, b'{' | b'[');
        is_blank &= byte.is_ascii_whitespace();
        if !quotes.next_is_quoted(byte) && byte == b'\n' && !is_blank {
            break;
        }
    }
    Ok(start)
}

/// Names the file type if `start` is not the start of UTF-8 text.
fn not_text(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 4] = [
        (b"PK\x03\x04", "an Excel workbook or another ZIP archive"),
        (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    let known = SIGNATURES.iter().find(|(signature, _)| start.starts_with(signature));
    // Images and archives start with a byte that cannot start a UTF-8 character, or soon contain control
    // characters.
    let is_binary = matches!(start.first(), Some(0x80..=0xbf | 0xf8..))
        || start.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    known.map(|(_, what)| *what).or(is_binary.then_some("binary data"))
}

/// Returns the delimiter of a line such as `sep=;`, which Excel interprets before the header.
fn separator_line(line: &[u8]) -> Option<u8> {
    match line.trim_ascii_start().strip_suffix(b"\n")? {
        [name @ .., b'=', delimiter] | [name @ .., b'=', delimiter, b'\r'] => {
            let is_delimiter = delimiter.is_ascii_punctuation() && *delimiter != b'"' || *delimiter == b'\t';
            (name.eq_ignore_ascii_case(b"sep") && is_delimiter).then_some(*delimiter)
        }
        _ => None,
    }
}

/// Returns the most frequent delimiter in the header. Spreadsheets write semicolons in locales where the
/// comma is the decimal separator.
fn delimiter(header: &[u8]) -> u8 {
    let mut quotes = Quotes::default();
    let unquoted: Vec<_> = header.iter().filter(|byte| !quotes.next_is_quoted(**byte)).collect();
    let count = |delimiter: &u8| unquoted.iter().filter(|byte| **byte == delimiter).count();
    // `max_by_key` returns the last maximum; `rev` makes that the first delimiter.
    DELIMITERS.into_iter().rev().max_by_key(count).unwrap_or(b',')
}

const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// Tracks which bytes of a line are within quotes.
#[derive(Default)]
struct Quotes {
    is_open: bool,
    last: Option<u8>,
}

impl Quotes {
    /// Returns whether `byte`, the next one, is within quotes.
    fn next_is_quoted(&mut self, byte: u8) -> bool {
        // A quote inside an unquoted cell is text, and two quotes inside a quoted cell are one quote.
        let may_open = self
            .last
            .is_none_or(|last| last == b'"' || DELIMITERS.contains(&last) || last.is_ascii_whitespace());
        if byte == b'"' {
            self.is_open = !self.is_open && may_open;
        }
        self.last = Some(byte);
        self.is_open
    }
}
