//! `enrich bulk` compared with a model of one row after the other: drawn rows, replies, earlier output, interruptions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::{bulk, start};
use crate::enrich::{Enrich, Signal, eventually, send};
use crate::fake::{FakeServer, Reply, error, found};

/// The status of a reply, or 0 for a connection that is closed, and the status of the row.
type Answer = (u16, &'static str);

const ANSWERS: [Answer; 11] = [
    (200, "found"),
    (404, "not_found"),
    (400, "invalid_email"),
    (500, "server_error"),
    (502, "lookup_error"),
    (503, "rate_limit_unavailable"),
    (0, "no_answer"),
    (408, "no_answer"),
    (503, "no_answer"), // of a proxy
    (403, "unexpected_response"),
    // Not executed, and not counted as an attempt.
    (429, "rate_limited"),
];

/// The replies to requests for one person: each of `first`, and then `last` again and again.
#[derive(Clone, Debug)]
struct Person {
    first: Vec<Answer>,
    last: Answer,
    delay_ms: u64,
}

fn person() -> impl Strategy<Value = Person> {
    let last = prop_oneof![8 => select(&ANSWERS[..3]), 1 => select(&ANSWERS[3..10])];
    let first = prop_oneof![4 => Just(Vec::new()), 1 => vec(select(&ANSWERS[3..]), 1..3)];
    (first, last, 0..20_u64).prop_map(|(first, last, delay_ms)| Person { first, last, delay_ms })
}

impl Person {
    fn reply(&self, email: &str, before: usize) -> Reply {
        std::thread::sleep(std::time::Duration::from_millis(self.delay_ms));
        let (status, code) = *self.first.get(before).unwrap_or(&self.last);
        let id = format!("id-p{}", number(email));
        match status {
            0 => None,
            200 => found(email),
            404 => Some((404, String::new(), json!({"lookup_id": id, "status": code}).to_string())),
            _ => error(status, code, &format!("request-id: {id}\r\nerror-reason: because\r\n")),
        }
    }

    /// Returns the number of requests of a lookup.
    fn requests(&self) -> usize {
        let limited = self.first.iter().filter(|(status, _)| *status == 429).count();
        if is_temporary(self.last.1) { 5 + limited } else { self.first.len() + 1 }
    }
}

/// Returns the number of the person with this email.
fn number(email: &str) -> usize {
    email[1..].split('@').next().unwrap().parse().unwrap()
}

fn is_temporary(status: &str) -> bool {
    ANSWERS[3..10].iter().any(|(_, code)| *code == status)
}

/// The columns that are added to a row.
const NAMES: [&str; 4] = ["linkedin_url", "status", "lookup_id", "reason"];
type Cells = [String; 4];

fn cells(number: usize, (status, code): Answer) -> Cells {
    let text_if = |condition: bool, text: String| if condition { text } else { String::new() };
    let url = text_if(status == 200, format!("https://www.linkedin.com/in/p{number}"));
    let reason = match status {
        0 | 200 | 404 => String::new(),
        _ if status == 403 || code == "no_answer" => format!("status {status}"),
        _ => "because".to_owned(),
    };
    [url, code.to_owned(), text_if(status != 0, format!("id-p{number}")), reason]
}

/// The status of a row that is not looked up, and its reason.
type Mistake = (&'static str, &'static str);

const NO_EMAIL: Mistake = ("no_email", "there is no email");

const fn malformed(reason: &'static str) -> Option<Mistake> {
    Some(("malformed_row", reason))
}

/// Rows with `,` for the delimiter and `@` for an email: as in the input, and as in the output without the added
/// columns. `?` is a byte that is not UTF-8.
const CSV: [(&str, &str, Option<Mistake>); 11] = [
    ("x,@", "x,@", None),
    ("\"Marlowe, Ada\",\" @ \"", "\"Marlowe, Ada\", @ ", None),
    ("\"two\nlines\",  @", "\"two\nlines\",  @", None),
    ("\"say \"\"hi\"\"\",@", "\"say \"\"hi\"\"\",@", None),
    ("=1+?,@", "=1+?,@", None),
    ("x", "x,", malformed("the row has 1 column, the header has 2; check for a missing quote")),
    ("x,@,x", "x,\"@,x\"", malformed("the row has 3 columns, the header has 2; check for a missing quote")),
    ("x,?@", "x,?@", malformed("the email is not UTF-8")),
    ("x,\"  \"", "x,  ", Some(NO_EMAIL)),
    ("x,LONG", "x,LONG", Some(("invalid_email", "the email is longer than 254 characters"))),
    (" ,", "", None),
];

const JSON: [(&str, &str, Option<Mistake>); 9] = [
    ("{'n':1.50,'mail':'@'}", "{'n':1.50,'mail':'@'", None),
    (" { 'mail' : ' @ ', 'a':[{}] } ", "{ 'mail' : ' @ ', 'a':[{}]", None),
    ("{}", "{", Some(NO_EMAIL)),
    ("{'mail':null }", "{'mail':null", Some(NO_EMAIL)),
    ("{'mail':7}", "{'mail':7", malformed("the field mail is not a string")),
    ("{'mail':'@','mail':'@'}", "{'mail':'@','mail':'@'", malformed("there are several fields mail")),
    ("{'mail':'@'", "{'malformed':'{\\'mail\\':\\'@\\''", malformed("the line is not one JSON object")),
    ("['@']", "{'malformed':'[\\'@\\']'", malformed("the line is not one JSON object")),
    ("", "", None),
];

/// The lines before the rows. Those of JSON Lines have no names.
const HEADERS: [&str; 7] =
    ["name,Mail", "\u{feff}name;Mail", "name\tMail", "\u{feff}sep=|\nname|Mail", "", "", "\u{feff}"];

#[derive(Clone, Debug)]
struct Case {
    persons: Vec<Person>,
    header: &'static str,
    line_end: &'static str,
    /// The index in [`CSV`] or [`JSON`], the person, and whether its email is in upper case.
    rows: Vec<(Index, usize, bool)>,
    prefix: &'static str,
    concurrency: &'static str,
    /// Whether the rows go to OUT and not to standard output.
    is_file: bool,
    /// The rows in OUT: with the final result of the person, or with a temporary error.
    earlier: Vec<bool>,
    /// Where the last row in OUT is truncated, and the zeros after it, which a power failure may leave.
    cut: Option<(Index, usize)>,
    retries_errors: bool,
    /// Signals, each after this number of requests.
    interruptions: Vec<(usize, Signal)>,
}

prop_compose! {
    fn case()(
        persons in vec(person(), 12),
        (header, line_end) in (select(&HEADERS[..]), select(&["\n", "\r\n"][..])),
        rows in vec((any::<Index>(), 0..12_usize, any::<bool>()), 1..30),
        (prefix, concurrency) in (select(&["", "e_"][..]), select(&["1", "1", "4", "32"][..])),
        is_file in prop::bool::weighted(0.8),
        earlier in prop_oneof![1 => Just(Vec::new()), 3 => vec(prop::bool::weighted(0.8), 0..30)],
        cut in prop::option::of((any::<Index>(), 0..9_usize)),
        retries_errors in any::<bool>(),
        signals in prop_oneof![
            2 => Just(Vec::new()),
            1 => vec((0..5_usize, select(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL][..])), 1..3),
        ],
    ) -> Case {
        let of_file = is_file.then_some((earlier, cut, signals));
        let (earlier, cut, interruptions) = of_file.unwrap_or_default();
        // A run that is killed after its end would repeat the lookups of errors.
        let retries_errors = retries_errors && is_file && interruptions.is_empty();
        Case {
            persons, header, line_end, rows, prefix, concurrency, is_file, earlier, cut, retries_errors, interruptions,
        }
    }
}

/// A row of the output without the added columns, and its person.
struct Row {
    line: usize,
    start: String,
    person: Result<usize, Mistake>,
}

fn bytes(text: &str) -> Vec<u8> {
    text.split('?').map(str::as_bytes).collect::<Vec<_>>().join(&0xff)
}

impl Case {
    fn delimiter(&self) -> Option<&str> {
        self.header.strip_suffix("Mail").map(|names| &names[names.len() - 1..])
    }

    /// Returns the input and its rows.
    fn input(&self) -> (String, Vec<Row>) {
        let (delimiter, mut rows) = (self.delimiter(), Vec::new());
        let header = delimiter.map_or(self.header.to_owned(), |_| format!("{}\n", self.header));
        let mut text = header.replace('\n', self.line_end);
        for (nth, (index, number, is_upper)) in self.rows.iter().enumerate() {
            let email = format!("{}{number}@gmail.com", if *is_upper { 'P' } else { 'p' });
            // The first row makes the format clear.
            let table = if delimiter.is_some() { &CSV[..] } else { &JSON };
            let (input, start, mistake) = table[if nth == 0 { 0 } else { index.index(table.len()) }];
            let [input, start] = [input, start].map(|text| {
                let text = text.replace(',', delimiter.unwrap_or(","));
                text.replace('\'', "\"").replace('@', &email).replace("LONG", &"x".repeat(1_025))
            });
            let line = text.matches('\n').count() + 1;
            text += &(input + self.line_end);
            if !start.is_empty() {
                rows.push(Row { line, start, person: mistake.map_or(Ok(*number), Err) });
            }
        }
        (text, rows)
    }

    fn header_out(&self) -> String {
        let Some(delimiter) = self.delimiter() else { return String::new() };
        let names = NAMES.map(|name| format!("{delimiter}{}{name}", self.prefix));
        format!("{}{}\n", self.header, names.concat())
    }

    fn line(&self, row: &Row, cells: &Cells) -> String {
        if let Some(delimiter) = self.delimiter() {
            return format!("{}{delimiter}{}\n", row.start, cells.join(delimiter));
        }
        let fields = NAMES.iter().zip(cells).map(|(name, cell)| {
            let value = if cell.is_empty() { "null".to_owned() } else { format!("\"{cell}\"") };
            format!("\"{}{name}\":{value}", self.prefix)
        });
        let comma = if row.start == "{" { "" } else { "," };
        format!("{}{comma}{}}}\n", row.start, fields.collect::<Vec<_>>().join(","))
    }

    fn text(&self, rows: &[Row], results: &[Cells]) -> Vec<u8> {
        let lines = rows.iter().zip(results).map(|(row, cells)| self.line(row, cells));
        bytes(&(self.header_out() + &lines.collect::<String>()))
    }

    /// Returns the results in OUT, without that of a truncated row, and the text of OUT if it exists.
    fn earlier(&self, rows: &[Row]) -> (Vec<Cells>, Option<Vec<u8>>) {
        let results = rows.iter().zip(&self.earlier).map(|(row, is_final)| match row.person {
            Err((code, _)) => cells(0, (0, code)),
            Ok(number) if !is_final => cells(number, ANSWERS[3 + number % 7]),
            Ok(number) if is_temporary(self.persons[number].last.1) => cells(number, ANSWERS[0]),
            Ok(number) => cells(number, self.persons[number].last),
        });
        let mut results: Vec<_> = results.collect();
        let mut text = self.text(rows, &results);
        let Some((at, zeros)) = self.cut else {
            let exists = !results.is_empty();
            return (results, exists.then_some(text));
        };
        let is_row = results.pop().is_some();
        let whole = if is_row { self.text(rows, &results).len() } else { 0 };
        text.truncate(whole + at.index((text.len() - whole).max(1)));
        text.extend(vec![0; if is_row { zeros } else { 0 }]);
        (results, Some(text))
    }

    fn check(mut self) {
        let (text, rows) = self.input();
        let (earlier, before) = self.earlier(&rows);
        let is_error = |code: &str| !["found", "not_found"].contains(&code);
        if earlier.iter().all(|result| is_error(&result[1])) {
            // The response of another service would stop the run.
            let persons = self.persons.iter_mut();
            let answers = persons.flat_map(|person| person.first.iter_mut().chain([&mut person.last]));
            answers.filter(|answer| answer.0 == 403).for_each(|answer| *answer = ANSWERS[4]);
        }

        // The rows of OUT from the first one that is looked up again are written again.
        let (mut kept, mut retried, mut first, mut known) = (0, 0, earlier.len(), HashMap::new());
        for (index, result) in earlier.iter().enumerate() {
            let is_retried = is_temporary(&result[1]) || self.retries_errors && is_error(&result[1]);
            if is_retried && rows[index].person.is_ok() {
                (retried, first) = (retried + 1, first.min(index));
            } else {
                kept += 1;
                known.extend(rows[index].person.map(|number| (number, result.clone())));
            }
        }
        let asked = rows[first..].iter().filter_map(|row| row.person.ok());
        let asked: BTreeSet<_> = asked.filter(|number| !known.contains_key(number)).collect();
        let results = rows[first..].iter().map(|row| match row.person {
            Err((code, _)) => cells(0, (0, code)),
            Ok(number) if known.contains_key(&number) => known[&number].clone(),
            Ok(number) => cells(number, self.persons[number].last),
        });
        let results: Vec<_> = earlier[..first].iter().cloned().chain(results).collect();
        let mut counts = BTreeMap::<&str, usize>::new();
        results.iter().for_each(|result| *counts.entry(&result[1]).or_default() += 1);

        let persons = self.persons.clone();
        let server = FakeServer::start(move |email, before| persons[number(email)].reply(email, before));
        let enrich = Enrich::new();
        enrich.file("in", bytes(&text));
        if let Some(text) = &before {
            let real = enrich.file("real", text);
            fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
            symlink(&real, enrich.path("out")).unwrap();
        }
        let prefix = format!("--prefix={}", self.prefix);
        let mut args = vec!["in", "--column", "mail", "--json", &prefix, "--concurrency", self.concurrency];
        args.extend(["-o", "out"].iter().filter(|_| self.is_file));
        args.extend(self.retries_errors.then_some("--retry-errors"));
        let is_lost = std::cell::Cell::new(false);
        let start = || start(&enrich, &bulk(&server.url, "enr_x", &args));
        let interrupt = |(requests, signal): &(usize, Signal)| {
            let (asked_before, mut child) = (server.requests().len(), start());
            eventually("requests", || {
                let has_ended = child.try_wait().unwrap().is_some();
                let is_time = server.requests().len() >= asked_before + requests;
                if is_time && !has_ended {
                    send(*signal, &child);
                }
                (has_ended || is_time).then_some(())
            });
            let ran = child.wait_with_output().unwrap();
            let (code, stdout) = (ran.status.code().unwrap_or(0), String::from_utf8_lossy(&ran.stdout));
            assert!([0, 1, 128 + signal.as_raw()].contains(&code), "{signal:?}: {code}");
            assert!(code < 2 || stdout.contains(r#""stopped":"interrupted""#), "{stdout}");
            if ran.status.code().is_none() && before.is_none() && requests % 2 == 0 {
                is_lost.set(is_lost.get() | fs::remove_file(enrich.path("out")).is_ok()); // OUT.run keeps the id
            }
            ran
        };
        let ended =
            self.interruptions.iter().map(interrupt).find(|ran| matches!(ran.status.code(), Some(0 | 1)));
        let ran = ended.unwrap_or_else(|| start().wait_with_output().unwrap());
        let (stdout, stderr) = (ran.stdout, String::from_utf8(ran.stderr).unwrap());
        let text = if self.is_file { &fs::read(enrich.path("out")).unwrap() } else { &stdout };
        assert_eq!(String::from_utf8_lossy(text), String::from_utf8_lossy(&self.text(&rows, &results)));
        let errors: BTreeMap<_, _> = counts.iter().filter(|(code, _)| is_error(code)).collect();
        assert_eq!(ran.status.code(), Some(i32::from(!errors.is_empty())), "{stderr}");
        let is_resumable = self.is_file && errors.keys().any(|code| is_temporary(code));
        let run = if before.is_some() { "real.run" } else { "out.run" };
        assert_eq!(enrich.path(run).exists(), self.is_file);
        if let Ok(meta) = fs::metadata(enrich.path("out")) {
            let mode = meta.permissions().mode() & 0o777;
            assert!(mode == 0o600 && earlier.is_empty() || mode == 0o640 && before.is_some(), "{mode:o}");
            assert_eq!(enrich.path("out").is_symlink(), before.is_some());
        }
        // With one idempotency key for each person, the server bills it once.
        let numbers: Vec<_> = server.requests().iter().map(|email| number(email)).collect();
        assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), asked);
        assert_eq!(server.idempotency_keys().len(), asked.len());
        // A run that is stopped writes each answer that it received. After one that is killed, lookups are repeated.
        let is_interrupted = !self.interruptions.is_empty();
        let is_killed = is_lost.get() || self.interruptions.iter().any(|(_, signal)| *signal == Signal::KILL);
        for asked in &asked {
            let (person, requests) = (&self.persons[*asked], numbers.iter().filter(|other| *other == asked));
            let repeats = is_killed || is_temporary(person.last.1);
            assert!(is_interrupted && repeats || requests.count() == person.requests(), "p{asked}");
        }
        if is_interrupted {
            return;
        }
        let count = |n: usize, unit: &str| format!("{n} {unit}{}", if n == 1 { "" } else { "s" });
        let mut lines = Vec::new();
        lines.extend((kept > 0).then(|| format!("resuming after {}", count(kept, "completed row"))));
        lines.extend((retried > 0).then(|| format!("retrying {} with an error", count(retried, "row"))));
        let mistakes = rows[first..].iter().filter_map(|row| Some((row.line, row.person.err()?.1)));
        lines.extend(mistakes.clone().take(10).map(|(line, reason)| format!("line {line}: {reason}")));
        let more = mistakes.count().saturating_sub(10);
        lines.extend((more > 0).then(|| format!("… and {more} more; see their status in the output")));
        let mut printed: Vec<_> = stderr.lines().collect();
        if !errors.is_empty() {
            let (rows, error) = (errors.values().copied().sum(), printed.pop().unwrap());
            let have = if rows == 1 { "has" } else { "have" };
            assert!(error.contains(&format!("\"{} {have} an error status\"", count(rows, "row"))), "{error}");
            assert_eq!(error.contains("run the same command again to retry temporary errors"), is_resumable);
        }
        let summary = if self.is_file { &*stdout } else { printed.pop().unwrap().as_bytes() };
        let mut summary: Value = serde_json::from_slice(summary).unwrap();
        assert_eq!(printed, lines);
        for time in ["seconds", "paused_seconds"] {
            assert!(summary.as_object_mut().unwrap().remove(time).unwrap().is_number());
        }
        let answered =
            |code: &str| asked.iter().filter(|number| self.persons[**number].last.1 == code).count();
        let lookups: usize = ["found", "not_found", "invalid_email"].map(answered).iter().sum();
        let rows_with = |code| counts.get(code).copied().unwrap_or_default();
        let expected = json!({
            "rows": rows.len(), "resumed": kept, "found": rows_with("found"), "not_found": rows_with("not_found"),
            "errors": errors, "lookups": lookups, "matches": answered("found"), "stopped": null,
        });
        assert_eq!(summary, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 10, ..ProptestConfig::with_cases(3) })]

    /// The runs mostly wait, so several run at once.
    #[test]
    fn output_requests_and_summary_are_those_of_the_model(cases in vec(case(), 12..36)) {
        std::thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(|| case.check()))));
    }
}
