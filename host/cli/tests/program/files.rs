//! The file formats for importing people.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::enrich::files::{Columns, FileError, RowError, Table, read_people};
use flate2::Compression;
use flate2::write::GzEncoder;

mod model;

/// Returns each row of `file` as `local part > name of the profile (confidence)`, or `line: reason`.
fn rows(file: impl AsRef<[u8]>) -> Vec<String> {
    let rows = read_people(file.as_ref(), &Columns::default()).unwrap();
    rows.map(|row| match row {
        Ok(p) => format!("{} > {} ({})", p.email.local_part(), p.profile.name(), p.confidence),
        Err(RowError::Rejected { line, reason }) => format!("{line}: {reason}"),
        Err(RowError::Unreadable(error)) => format!("unreadable: {error}"),
    })
    .collect()
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

const CSV: &str = "email,linkedin_url,confidence\n\
    ada@gmail.com,https://www.linkedin.com/in/ada,0.9\n\
    bea@gmail.com,linkedin.com/in/bea/,\n";

#[test]
fn reads_both_formats_with_headers_in_any_case_and_order() {
    let lines = "{\"email\":\"ada@gmail.com\",\"LinkedIn_URL\":\"linkedin.com/in/ada\",\"Confidence\":0.9,\"other\":[1]}\n\n\
        {\"linkedin_url\":\"linkedin.com/in/bea\",\"email\":\"bea@gmail.com\",\"confidence\":null}";
    let reordered = "Name;x,LinkedIn_URL , EMAIL, Confidence\r\nAda,linkedin.com/in/ada,ada@gmail.com,.9\r\n\
        Bea,linkedin.com/in/bea,bea@gmail.com,\r\n";
    for text in [CSV, lines, reordered] {
        for file in [text.into(), format!("\u{feff}{text}").into(), gzipped(text)] {
            assert_eq!(rows(file), ["ada > ada (0.9)", "bea > bea (1)"], "{text}");
        }
    }
}

#[test]
fn gzip_has_the_rows_of_all_members_and_ends_before_zeros() {
    let (header, lines) = CSV.split_at(CSV.find('\n').unwrap() + 1);
    let members = [gzipped(header), gzipped(lines)].concat();
    for (padding, last) in [
        (vec![], None),
        (vec![0; 1], None),
        (vec![0; 100_000], None),
        (b"\0\0garbage garbage".to_vec(), Some("unreadable: ")),
        (b"garbage garbage".to_vec(), Some("unreadable: ")),
    ] {
        let mut rows = rows([&members[..], &padding].concat());
        assert_eq!(rows[..2], ["ada > ada (0.9)", "bea > bea (1)"]);
        assert_eq!(rows.len() > 2, last.is_some(), "{rows:?}");
        assert!(rows.pop().unwrap().starts_with(last.unwrap_or_default()));
    }
}

#[test]
fn accepts_configured_column_names() {
    let columns = Columns { email: "E-Mail".into(), url: "profile".into(), confidence: "score".into() };
    let csv = "e-mail,profile,score\nada@gmail.com,linkedin.com/in/ada,0.5\n";
    let person = read_people(csv.as_bytes(), &columns).unwrap().next().unwrap().unwrap();
    assert_eq!((person.profile.name(), person.confidence), ("ada", 0.5));
    // Without the column, each match would be trusted.
    let missing = read_people(&b"e-mail,profile\nada@gmail.com,linkedin.com/in/ada\n"[..], &columns);
    assert!(matches!(missing, Err(FileError::NoColumn { missing, .. }) if missing == "score"));
    let lines = r#"{"E-Mail":"ada@gmail.com","profile":"linkedin.com/in/ada"}"#;
    let missing = read_people(lines.as_bytes(), &columns).unwrap().next().unwrap();
    assert!(
        matches!(missing, Err(RowError::Rejected { reason, .. }) if reason == "the field score is missing")
    );
}

#[test]
fn cut_changes_no_person() {
    let (email, url) = ("ada@gmail.com", "linkedin.com/in/ada");
    for (csv, is_accepted) in [
        (format!("email,linkedin_url,confidence\n{email},{url},0.35"), true),
        (format!("email,linkedin_url,name\n{email},{url},Ada"), true),
        (format!("email,linkedin_url\n{email},{url}"), false),
        (format!("linkedin_url,confidence,email\n{url},0.35,{email}"), false),
    ] {
        for end in csv.find('\n').unwrap() + 1..=csv.len() {
            for person in read_people(&csv.as_bytes()[..end], &Columns::default()).unwrap().flatten() {
                assert_eq!((person.email.as_str(), person.profile.name()), (email, "ada"), "{}", &csv[..end]);
                assert!(person.confidence <= 0.35 || !csv.contains("0.35"), "{}", &csv[..end]);
            }
        }
        let rejected = "2: the last line has no line break: it may be cut; add one if it is complete";
        assert_eq!(rows(&csv) != [rejected], is_accepted, "{csv}");
        assert!(!rows(csv.clone() + "\n")[0].starts_with("2: "), "{csv}");
    }
}

#[test]
fn rejects_an_invalid_csv_row_by_line_and_reads_the_next() {
    let csv = b"email,linkedin_url,confidence\n\
        ada,linkedin.com/in/ada,1\n\
        info@gmail.com,linkedin.com/in/info,1\n\
        ada@gmail.com,https://example.com/ada,1\n\
        ada@gmail.com,linkedin.com/company/ada,1\n\
        ada@gmail.com,linkedin.com/in/ada,2\n\
        ada@gmail.com,linkedin.com/in/ada,NaN\n\
        ada@gmail.com,linkedin.com/in/ada,sure\n\
        ada@gmail.com\n\
        ada@gmail.com,linkedin.com/in/\xff,1\n\
        ada@gmail.com,linkedin.com/in/,1\n\
        bea@gmail.com,linkedin.com/in/bea,1\n";
    assert_eq!(
        rows(csv),
        [
            "2: the email has no local part followed by an @",
            "3: the email names a role and not a person",
            "4: the URL is not at linkedin.com",
            "5: the URL is not a person's profile: the path has to be /in/ and a name",
            "6: the confidence is not between 0 and 1",
            "7: the confidence is not between 0 and 1",
            "8: the confidence is not a number",
            "9: the row has 1 column, the header has 3; check for a missing quote",
            "10: the row is not UTF-8",
            "11: the URL is not a person's profile: the name is empty, longer than 300 octets, or has invalid characters",
            "bea > bea (1)",
        ]
    );
}

#[test]
fn rejects_an_invalid_json_line_and_reads_the_next() {
    let long = format!("{{\"email\":\"{}\"}}", "x".repeat(70_000));
    let lines = format!(
        "{{\"email\":1,\"linkedin_url\":\"linkedin.com/in/ada\"}}\n[]\nnot json\n{long}\n{}",
        concat!(
            r#"{"email":"bea@gmail.com","linkedin_url":"linkedin.com/in/bea","confidence":"high"}"#,
            "\n",
            r#"{"email":"bea@gmail.com","linkedin_url":"linkedin.com/in/bea","email":"bea@gmail.com"}"#,
            "\n",
            r#"{"email":"bea@gmail.com","linkedin_url":"linkedin.com/in/bea","confidence":1,"confidence":1}"#,
        )
    );
    assert_eq!(
        rows(lines),
        [
            "1: the field email is missing or not a string",
            "2: the line is not one JSON object",
            "3: the line is not one JSON object",
            "4: the line is longer than 64 KiB",
            "5: the confidence is not a number",
            "6: there are several fields email",
            "7: there are several fields confidence",
        ]
    );
}

#[test]
fn explains_why_a_file_has_no_rows_of_people() {
    const ARRAY: &str = "the file is a JSON array; JSON Lines is expected, one object on each line, as `jq \
                         --compact-output '.[]'` prints it";
    for (file, expected) in [
        ("mail,url\n", "there is no column email; the columns are mail, url"),
        ("email,linkedin_url,Email\n", "there are several columns email; rename all but one"),
        (
            "confidence,email,linkedin_url,confidence\n",
            "there are several columns confidence; rename all but one",
        ),
        (
            "sep=,\nada@gmail.com,linkedin.com/in/ada\nbea@gmail.com,linkedin.com/in/bea\n",
            "expected a header row, found an email; add a first row that names the columns",
        ),
        ("[{\"email\":\"ada@gmail.com\"}]", ARRAY),
        ("\n [\r\n  {\r\n    \"email\": \"ada@gmail.com\"", ARRAY),
        (
            "{ \n  \"email\": \"ada@gmail.com\"",
            "the file is indented JSON; JSON Lines is expected, one object on each line, as `jq --compact-output .` prints it",
        ),
    ] {
        let error = read_people(file.as_bytes(), &Columns::default()).err().unwrap();
        assert_eq!(error.to_string(), expected);
        let error = Table::read(file.as_bytes(), "email", &["confidence".to_owned()]).err();
        assert!(error.is_some() || file.starts_with("email"), "{file}");
    }
}

#[test]
fn counts_lines_from_the_start_of_the_file() {
    for start in ["", "\u{feff}", "\n\r\n", "sep=,\n", "\u{feff}sep=,\r\n"] {
        let line = start.matches('\n').count() + 3;
        let file = format!("{start}email,linkedin_url,\"two\nlines\"\na,b,c\n");
        assert_eq!(
            rows(&file),
            [format!("{line}: the email has no local part followed by an @")],
            "{file:?}"
        );
    }
}

#[test]
fn detects_the_delimiter_in_the_header() {
    for header in [
        "email;linkedin_url;confidence",
        "email\tlinkedin_url\tconfidence",
        "\"email\";\"linkedin_url\";\"confidence\";\"a,b,c,d\"",
        "email;linkedin_url;confidence;\"size, 5\"\", in\nEurope\"",
        "email;linkedin_url;confidence;first, last",
        "sep=|\r\nemail|linkedin_url|confidence",
        "SEP=;\nemail;linkedin_url;confidence",
        "sep=\t\nemail\tlinkedin_url\tconfidence",
    ] {
        let delimiter = header.chars().find(|c| ";\t|".contains(*c)).unwrap();
        let columns = if header.contains(',') { 4 } else { 3 };
        let mut cells = vec!["ada@gmail.com", "linkedin.com/in/ada", "0.9", "x,y,z"];
        cells.truncate(columns);
        let csv = format!("{header}\r\n{}\r\n", cells.join(&delimiter.to_string()));
        for text in [csv.clone().into_bytes(), gzipped(&csv), format!("\u{feff}{csv}").into_bytes()] {
            assert_eq!(rows(text), ["ada > ada (0.9)"], "{header:?}");
        }
    }
}

#[test]
fn names_the_type_of_a_binary_file() {
    let utf16: Vec<u8> = "\u{feff}email,linkedin_url\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16_be: Vec<u8> =
        "\u{feff}email,linkedin_url\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (file, what) in [
        (&b"PK\x03\x04\x14\0\x06\0[Content_Types].xml"[..], "an Excel workbook or another ZIP archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old Excel workbook"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary data"),
        (b"email,linkedin\0_url\n", "binary data"),
        (&utf16, "UTF-16 text"),
        (&utf16_be, "UTF-16 text"),
    ] {
        let error = read_people(file, &Columns::default()).err().unwrap().to_string();
        assert_eq!(
            error,
            format!("the file is {what}, not CSV or JSON Lines; save it as CSV (UTF-8) and use that file")
        );
    }
}

#[test]
fn rejects_an_empty_file() {
    for file in ["", "\n \n", "\u{feff}"] {
        assert!(
            matches!(read_people(file.as_bytes(), &Columns::default()), Err(FileError::Empty)),
            "{file:?}"
        );
    }
}

#[test]
fn reports_truncated_gzip_after_the_complete_rows() {
    let many = format!("{CSV}{}", "bea@gmail.com,linkedin.com/in/bea,1\n".repeat(50_000));
    let whole = gzipped(&many);
    let rows = rows(&whole[..whole.len() / 2]);
    assert_eq!(rows[0], "ada > ada (0.9)");
    assert!(rows.last().unwrap().starts_with("unreadable: "), "{:?}", rows.last());
}

/// A text that never ends: `start`, and then `unit` again and again.
struct Endless {
    start: &'static [u8],
    unit: u8,
    bytes_read: Arc<AtomicUsize>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.start.read(buffer)?;
        buffer[bytes..].fill(self.unit);
        self.bytes_read.fetch_add(buffer.len(), Ordering::Relaxed);
        Ok(buffer.len())
    }
}

#[test]
fn refuses_an_endless_row_after_a_bounded_number_of_bytes() {
    const LONG: &str = "is longer than 1 MiB; check for a missing quote";
    const WIDE: &str = "has more than 16,384 columns; check for a missing quote";
    for (start, unit, line, limit) in [
        ("email,linkedin_url\n", b'a', 2, LONG),
        ("email,linkedin_url\nada@gmail.com,\"", b'\n', 2, LONG),
        ("email,linkedin_url\nada@gmail.com,linkedin.com/in/ada\n", b',', 3, WIDE),
        ("email,linkedin_url", b',', 1, WIDE),
        ("email,linkedin_url", b'a', 1, LONG),
    ] {
        let expected = format!("line {line}: the row {limit}");
        let bytes_read = Arc::new(AtomicUsize::new(0));
        let file = || Endless { start: start.as_bytes(), unit, bytes_read: bytes_read.clone() };
        let columns = Columns::default();
        let error = match read_people(file(), &columns) {
            Err(error) => error.to_string(),
            Ok(rows) => rows
                .map(|row| match row {
                    Err(RowError::Unreadable(error)) => error.to_string(),
                    _ => String::new(),
                })
                .find(|error| !error.is_empty())
                .unwrap(),
        };
        assert!(error.ends_with(&expected), "{error}");
        let error = match Table::read(file(), "email", &[]) {
            Err(error) => error,
            Ok(mut table) => table.find_map(Result::err).unwrap(),
        };
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert!(bytes_read.load(Ordering::Relaxed) < 2 * 1_200_000, "{start} {unit}");
    }
}

#[test]
fn reads_a_row_of_the_largest_size() {
    let wide = "x,".repeat(16_384 - 2);
    let csv = format!("{wide}email,linkedin_url\n{wide}ada@gmail.com,linkedin.com/in/ada\n");
    assert_eq!(rows(&csv), ["ada > ada (1)"]);
    let long = "x".repeat(1024 * 1024 - 100);
    let csv = format!("email,linkedin_url,note\nada@gmail.com,linkedin.com/in/ada,\"{long}\"\n");
    assert_eq!(rows(gzipped(&csv)), ["ada > ada (1)"]);
    let csv = gzipped(&csv.replace('x', "xx"));
    let unreadable = "unreadable: line 2: the row is longer than 1 MiB; check for a missing quote";
    assert_eq!(rows(csv), [unreadable]);
}
