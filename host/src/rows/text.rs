//! The text of a file, gunzipped, and what it is: its first line decides.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::{FileFault, MARK, unmarked};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 4180, with a header.
    Csv {
        /// The byte between two cells: the comma, semicolon or tab that the header has most of, or the one that a line `sep=;`
        /// before it names.
        delimiter: u8,
    },
    /// One object a line.
    JsonLines,
}

/// The text of a file.
pub(super) struct Text<'a> {
    pub(super) form: Form,
    /// What precedes the header of CSV: a byte order mark, a line `sep=;`, both or neither.
    pub(super) prefix: Vec<u8>,
    /// The number of the line at which `bytes` start.
    pub(super) line: u64,
    /// The text without the prefix.
    pub(super) bytes: Box<dyn Read + Send + 'a>,
}

impl<'a> Text<'a> {
    pub(super) fn open(mut file: impl Read + Send + 'a) -> Result<Self, FileFault> {
        let mut magic = Vec::new();
        file.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
        let is_gzip = magic == GZIP;
        let file = Cursor::new(magic).chain(file);
        let mut text: BufReader<Box<dyn Read + Send + 'a>> =
            BufReader::new(if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) });

        let start = read_start(&mut text)?;
        if let Some(what) = not_text(&start) {
            return Err(FileFault::NotText(what));
        }
        let header = unmarked(&start);
        let mark = &start[..start.len() - header.len()];
        if let Some(delimiter) = separator_line(header) {
            let prefix = [mark, b"sep=", &[delimiter], b"\n"].concat();
            let line = 1 + header.iter().filter(|byte| **byte == b'\n').count() as u64;
            return Ok(Self { form: Form::Csv { delimiter }, prefix, line, bytes: Box::new(text) });
        }
        let form = match header.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Err(FileFault::Empty),
            Some(b'{') => Form::JsonLines,
            Some(_) => Form::Csv { delimiter: delimiter(header) },
        };
        let (prefix, bytes) = (mark.to_vec(), Cursor::new(header.to_vec()).chain(text));
        Ok(Self { form, prefix, line: 1, bytes: Box::new(bytes) })
    }
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// The longest first line that is examined, with the blanks before it, in bytes.
const START_BYTES_MAX: usize = 64 * 1024;

/// Reads `text` through its first line that is not blank, or through the `{` that this line starts with.
///
/// Reads byte by byte, so that the result does not depend on the blocks in which a pipe delivers the text.
fn read_start(text: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let mut quotes = Quotes::default();
    let mut is_blank = true;
    for byte in text.bytes().take(START_BYTES_MAX) {
        let byte = byte?;
        start.push(byte);
        if MARK.starts_with(&start) {
            continue;
        }
        if is_blank && byte == b'{' {
            break;
        }
        is_blank &= byte.is_ascii_whitespace();
        if !quotes.next_is_quoted(byte) && byte == b'\n' && !is_blank {
            break;
        }
    }
    Ok(start)
}

/// Names what the file is, if its start is not that of UTF-8 text.
fn not_text(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 4] = [
        (b"PK\x03\x04", "an Excel workbook or another ZIP archive"),
        (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    let known = SIGNATURES.iter().find(|(signature, _)| start.starts_with(signature));
    // Images and archives start with a byte that starts no UTF-8 character, or have control characters soon.
    let is_binary = matches!(start.first(), Some(0x80..=0xbf | 0xf8..))
        || start.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    known.map(|(_, what)| *what).or(is_binary.then_some("binary data"))
}

/// The delimiter that a line such as `sep=;` names. Excel obeys such a line before the header.
fn separator_line(line: &[u8]) -> Option<u8> {
    match line.trim_ascii_start().strip_suffix(b"\n")? {
        [name @ .., b'=', delimiter] | [name @ .., b'=', delimiter, b'\r'] => {
            let is_delimiter = delimiter.is_ascii_punctuation() && *delimiter != b'"' || *delimiter == b'\t';
            (name.eq_ignore_ascii_case(b"sep") && is_delimiter).then_some(*delimiter)
        }
        _ => None,
    }
}

/// The delimiter that the header has most of. Spreadsheets write semicolons where the comma is the decimal separator.
fn delimiter(header: &[u8]) -> u8 {
    let mut quotes = Quotes::default();
    let unquoted: Vec<_> = header.iter().filter(|byte| !quotes.next_is_quoted(**byte)).collect();
    let count = |delimiter: &u8| unquoted.iter().filter(|byte| **byte == delimiter).count();
    // Of several maxima, the last one counts.
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
        // A quote in the middle of a cell is text, and two in quotes are one quote.
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
