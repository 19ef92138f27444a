//! CSV compared with a second parser, which matches one cell after the other with a regular expression and reads
//! the whole text at once.

use std::io::{self, Read};
use std::sync::LazyLock;

use ::enrich::files::{Columns, RowError, Table, read_people};
use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::model::ProfileUrl;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use regex::Regex;

/// A cell and what ends it.
static CELL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\A(?:"((?:[^"]|"")*)"|([^",\r\n][^,\r\n]*)?)(,|\r\n?|\n|\z)"#).unwrap());

/// The rows of a text with their first lines, without those whose cells are all empty, and the line of the row
/// that cannot be parsed.
fn parse(text: &str) -> (Vec<(u64, Vec<String>)>, Option<u64>) {
    let (mut rows, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let lines_before = text[..at].replace("\r\n", "\n").replace('\r', "\n").matches('\n').count();
        let (line, mut cells) = (lines_before as u64 + 1, Vec::new());
        loop {
            let Some(found) = CELL.captures(&text[at..]) else { return (rows, Some(line)) };
            let plain = found.get(2).map(|cell| cell.as_str().to_owned());
            let quoted = found.get(1).map(|cell| cell.as_str().replace("\"\"", "\""));
            cells.push(plain.or(quoted).unwrap_or_default());
            at += found[0].len();
            if &found[3] != "," {
                break;
            }
        }
        if cells.iter().any(|cell| !cell.trim_ascii().is_empty()) {
            rows.push((line, cells));
        }
    }
    (rows, None)
}

const HEADER: &str = "email,linkedin_url,name";

const ODD: [&str; 15] = [
    "\"",
    "\"\"",
    ",",
    "\n",
    "\r\n",
    "\r",
    " ",
    "a",
    "é",
    "\u{1F600}",
    "\u{feff}",
    ",,",
    ",\"",
    "\",",
    "\"\n",
];

/// A row of a person, whose name can be anything, or an arbitrary text.
fn piece() -> impl Strategy<Value = String> {
    let long = (1..3_000_usize).prop_map(|length| "long ".repeat(length));
    let text = prop_oneof![16 => select(&ODD[..]).prop_map(str::to_owned), 1 => long];
    let name = prop_oneof![
        8 => "[a-z ]{0,9}",
        8 => "\"([a-z,\r\n ]|\"\"){0,9}\"",
        1 => Just("\"P".to_owned()),
        1 => Just("\"P\" P".to_owned()),
    ];
    let end = select(&["\n", "\r\n", "\n\n", "\r"][..]);
    let person = (0..1_000_u32, name, end)
        .prop_map(|(n, name, end)| format!("p{n}@gmail.com,linkedin.com/in/p-{n},{name}{end}"));
    prop_oneof![8 => person, 1 => Just(",,\n".to_owned()), 1 => text]
}

/// Returns the text in chunks of these sizes, in turn.
struct Chunks<'a> {
    text: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = *self.sizes.next().unwrap();
        let size = size.min(buffer.len());
        self.text.read(&mut buffer[..size])
    }
}

/// Returns whether these cells are a person, by the checks of the library.
fn is_person(cells: &[String]) -> bool {
    cells.len() == 3
        && Email::parse(cells[0].trim()).is_ok_and(|email| EmailPolicy::default().check(&email).is_ok())
        && ProfileUrl::parse(&cells[1]).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn csv_has_the_rows_of_a_second_parser(
        pieces in prop_oneof![9 => vec(piece(), 0..12), 1 => vec(piece(), 0..2_000)],
        sizes in vec(1..5_000_usize, 1..5),
    ) {
        let text = format!("{HEADER}\n{}", pieces.concat());
        let chunks = || Chunks { text: text.as_bytes(), sizes: sizes.iter().cycle() };
        let (rows, broken) = parse(&text);
        let rows = &rows[1..];

        let read = read_people(chunks(), &Columns::default()).unwrap().map(|row| match row {
            Ok(person) => (None, person.email.local_part().to_owned()),
            Err(RowError::Rejected { line, .. }) => (Some(line), String::new()),
            Err(RowError::Unreadable(error)) => (None, error.to_string()),
        });
        let expected: Vec<_> = rows.iter().map(|(line, cells)| match is_person(cells) {
            true => (None, cells[0].trim().split_once('@').unwrap().0.to_owned()),
            false => (Some(*line), String::new()),
        }).collect();
        let mut read: Vec<_> = read.collect();
        if let Some(line) = broken {
            let (_, error) = read.pop().unwrap();
            prop_assert!(error.starts_with(&format!("line {line}: ")), "{}: {}", line, error);
        }
        prop_assert_eq!(&read, &expected);

        // `bulk` has the same rows, with their content.
        let table = Table::read(chunks(), "email", &[]).unwrap();
        let mut table: Vec<_> = table.map(|row| row.map_err(|error| error.to_string())).collect();
        if let Some(line) = broken {
            let error = table.pop().unwrap().unwrap_err();
            prop_assert!(error.starts_with(&format!("line {line}: ")), "{}: {}", line, error);
        }
        prop_assert_eq!(table.len(), rows.len());
        for (row, (line, cells)) in table.into_iter().zip(rows) {
            let row = row.unwrap();
            prop_assert_eq!(row.line, *line);
            let (again, broken) = parse(&String::from_utf8(row.text).unwrap());
            prop_assert_eq!(broken, None);
            // A short row is padded to the columns of the header. The last cell of a long one contains the rest.
            let mut cells = cells.clone();
            cells.resize(cells.len().max(3), String::new());
            let mut again = again[0].1.clone();
            prop_assert_eq!(again.len(), 3);
            if cells.len() > 3 {
                let (last, broken) = parse(&format!("x,{}", again.remove(2)));
                prop_assert_eq!(broken, None);
                again.extend_from_slice(&last[0].1[1..]);
            }
            prop_assert_eq!(&again, &cells);
        }
    }
}
