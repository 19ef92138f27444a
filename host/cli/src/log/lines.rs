//! The lines of lookups, in the format of `tracing_subscriber`, which takes eight times as many instructions.

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;

use super::format::LogFormat;

/// The target of the events of a server's lookups.
const TARGET: &str = "enrich::lookup";

/// Formats the events of lookups, and passes all other events to another layer.
pub(crate) struct LookupLines<M, L> {
    format: LogFormat,
    out: M,
    other_events: L,
}

impl<M, L> LookupLines<M, L> {
    pub(crate) fn new(format: LogFormat, out: M, other_events: L) -> Self {
        Self { format, out, other_events }
    }
}

impl<S: Subscriber, M: for<'a> MakeWriter<'a> + 'static, L: Layer<S>> Layer<S> for LookupLines<M, L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        thread_local! {
            /// The memory of the last line.
            static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        if event.metadata().target() != TARGET {
            return self.other_events.on_event(event, context);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut text = LINE.take();
        let mut line = Line::start(self.format, now, event.metadata(), &mut text);
        event.record(&mut line);
        line.end();
        // The queue accepts each line, or counts it as lost.
        let _ = self.out.make_writer().write_all(&text);
        text.clear();
        LINE.set(text);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.other_events.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.other_events.on_record(id, values, context);
    }
}

/// A line in its format. Its fields have no control characters.
struct Line<'a> {
    format: LogFormat,
    out: &'a mut Vec<u8>,
}

impl<'a> Line<'a> {
    /// Starts a line at the time `now`, which is counted from the Unix epoch.
    fn start(format: LogFormat, now: Duration, metadata: &Metadata<'_>, out: &'a mut Vec<u8>) -> Self {
        let level = match *metadata.level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARN",
            Level::INFO => "INFO",
            Level::DEBUG => "DEBUG",
            Level::TRACE => "TRACE",
        };
        let mut line = Self { format, out };
        match format {
            LogFormat::Text => {
                line.put_time(now);
                line.put(if level.len() == 5 { " " } else { "  " });
                line.put(level);
                line.put(" enrich::lookup:");
            }
            LogFormat::Json => {
                line.put("{\"timestamp\":\"");
                line.put_time(now);
                line.put("\",\"level\":\"");
                line.put(level);
                line.put("\"");
            }
        }
        line
    }

    fn end(mut self) {
        self.put(match self.format {
            LogFormat::Text => "\n",
            LogFormat::Json => ",\"target\":\"enrich::lookup\"}\n",
        });
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a time as in RFC 3339, with microseconds.
    fn put_time(&mut self, now: Duration) {
        thread_local! {
            /// The last second that was formatted, and its text. Formatting it takes longer than the rest of
            /// a line.
            static SECOND: Cell<(u64, [u8; 19])> = const { Cell::new((0, *b"1970-01-01T00:00:00")) };
        }
        let (mut second, mut text) = SECOND.get();
        if second != now.as_secs() {
            second = now.as_secs();
            text = format_second(second);
            SECOND.set((second, text));
        }
        self.out.extend_from_slice(&text);
        let (mut fraction, mut micros) = (*b".000000Z", now.subsec_micros());
        for digit in fraction[1..7].iter_mut().rev() {
            *digit += (micros % 10) as u8;
            micros /= 10;
        }
        self.out.extend_from_slice(&fraction);
    }

    /// Writes the name of a field, before its value.
    fn put_name(&mut self, field: &Field) {
        let name = field.name();
        match self.format {
            LogFormat::Text => {
                self.out.push(b' ');
                if name != "message" {
                    self.put(name);
                    self.out.push(b'=');
                }
            }
            LogFormat::Json => {
                self.put(",\"");
                self.put(name);
                self.put("\":");
            }
        }
    }

    fn put_quoted(&mut self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.out.push(b'"');
            self.put(text);
            return self.out.push(b'"');
        }
        // Writing to a vector does not fail.
        let _ = match self.format {
            LogFormat::Text => write!(self.out, "{text:?}"),
            LogFormat::Json => serde_json::to_writer(&mut *self.out, text).map_err(Into::into),
        };
    }
}

/// Appends to the line. The adapter of `io::Write` takes more instructions.
impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text);
        Ok(())
    }
}

impl Visit for Line<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_name(field);
        self.put(itoa::Buffer::new().format(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_name(field);
        self.put(itoa::Buffer::new().format(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_name(field);
        self.put(if value { "true" } else { "false" });
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return self.record_debug(field, &format_args!("{value}"));
        }
        self.put_name(field);
        self.put_quoted(value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_name(field);
        let start = self.out.len();
        // Writing to a vector fails only if `value` cannot be formatted.
        let _ = fmt::Write::write_fmt(self, format_args!("{value:?}"));
        match (self.format, is_plain(&self.out[start..])) {
            (LogFormat::Text, true) => {}
            (LogFormat::Json, true) => {
                self.out.insert(start, b'"');
                self.out.push(b'"');
            }
            (format, false) => {
                let text = String::from_utf8_lossy(&self.out[start..]).into_owned();
                self.out.truncate(start);
                if format == LogFormat::Text && !text.contains(char::is_control) {
                    self.put(&text);
                } else {
                    self.put_quoted(&text);
                }
            }
        }
    }
}

/// Returns whether text consists of ASCII characters that neither format escapes. Checks every byte without
/// early exit so that the loop vectorizes.
fn is_plain(text: &[u8]) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    text.iter().fold(true, |all, byte| all & is_plain(*byte))
}

/// Formats a time in seconds since the Unix epoch, without its time zone.
fn format_second(second: u64) -> [u8; 19] {
    let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    let text = time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    // `MAX` is in the year 9999, so that all texts have this length.
    text.as_bytes().try_into().unwrap_or(*b"9999-12-31T23:59:59")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use serde_json::Value;
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::{Identity, SubscriberExt};
    use tracing_subscriber::{fmt, registry};

    use super::*;

    /// Returns a writer, and the lines that it writes.
    fn sink() -> (impl for<'a> MakeWriter<'a> + Send + Sync + 'static, impl FnOnce() -> String) {
        let lines: &Mutex<Vec<u8>> = Box::leak(Box::default());
        (|| lines.make_writer(), || String::from_utf8(lines.lock().unwrap().clone()).unwrap())
    }

    /// Returns the lines of the events of `log` in this module's format, and those of `tracing_subscriber`.
    fn lines_of(format: LogFormat, log: impl FnOnce()) -> [String; 2] {
        let ((out, lines), (expected_out, expected_lines)) = (sink(), sink());
        let expected = fmt::layer().with_writer(expected_out);
        let expected = match format {
            LogFormat::Text => expected.with_ansi(false).boxed(),
            LogFormat::Json => expected.json().flatten_event(true).boxed(),
        };
        let layer = LookupLines::new(format, out, Identity::new());
        with_default(registry().with(layer).with(expected), log);
        [lines(), expected_lines()]
    }

    /// Parses the time of a line and returns the text around it.
    fn without_time(format: LogFormat, line: &str) -> String {
        let (before, rest) =
            line.split_at(if format == LogFormat::Text { 0 } else { "{\"timestamp\":\"".len() });
        let (time, after) = rest.split_at("2026-11-21T03:54:38.000042Z".len());
        assert!(time.parse::<Timestamp>().is_ok(), "{line}");
        before.to_owned() + after
    }

    fn texts() -> impl Strategy<Value = String> {
        vec(any::<char>(), 0..20).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn writes_the_same_lines_as_tracing_subscriber(
            displayed in "[ -~é]{0,20}",
            workspace in option::of(texts()),
            error in texts(),
            status: u16,
            signed: i64,
            is_retry: bool,
        ) {
            let (workspace, status) = (workspace.as_deref(), Some(status));
            for format in [LogFormat::Text, LogFormat::Json] {
                let [lines, expected] = lines_of(format, || {
                    tracing::info!(target: "enrich::lookup", lookup_id = %displayed, workspace, status, error);
                    tracing::error!(target: "enrich::lookup", signed, is_retry, "a message: {displayed}");
                });
                prop_assert_eq!(lines.lines().count(), 2);
                for (line, expected) in lines.lines().zip(expected.lines()) {
                    prop_assert_eq!(without_time(format, line), without_time(format, expected));
                }
            }
        }

        #[test]
        fn escapes_control_characters(displayed in texts(), text in texts()) {
            let [lines, _] = lines_of(LogFormat::Text, || {
                tracing::warn!(target: "enrich::lookup", %displayed, text, "a message: {displayed}");
            });
            prop_assert_eq!(lines.find(char::is_control), Some(lines.len() - 1));
            let [lines, _] = lines_of(LogFormat::Json, || {
                tracing::warn!(target: "enrich::lookup", %displayed, text, "a message: {displayed}");
            });
            let line: Value = serde_json::from_str(&lines).unwrap();
            prop_assert_eq!(&line["displayed"], &Value::from(displayed.as_str()));
            prop_assert_eq!(&line["text"], &Value::from(text));
            prop_assert_eq!(&line["message"], &Value::from(format!("a message: {displayed}")));
        }
    }

    #[test]
    fn writes_level_and_time() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let [lines, expected] = lines_of(format, || {
                tracing::error!(target: "enrich::lookup", a = 1);
                tracing::warn!(target: "enrich::lookup", a = 1);
                tracing::info!(target: "enrich::lookup", a = 1);
                tracing::debug!(target: "enrich::lookup", a = 1);
                tracing::trace!(target: "enrich::lookup", a = 1);
            });
            assert_eq!(lines.lines().count(), 5);
            for (line, expected) in lines.lines().zip(expected.lines()) {
                assert_eq!(without_time(format, line), without_time(format, expected));
            }
        }
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000042Z"),
            (1_795_233_278, "2026-11-21T03:54:38.000042Z"),
            (u64::MAX, "9999-12-30T22:00:00.000042Z"),
        ] {
            let mut out = Vec::new();
            Line { format: LogFormat::Text, out: &mut out }.put_time(Duration::new(seconds, 42_999));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn passes_other_events_on() {
        let ((out, lines), (other_out, other)) = (sink(), sink());
        let layer = fmt::layer().with_writer(other_out);
        let layer = LookupLines::new(LogFormat::Text, out, layer.with_ansi(false));
        with_default(registry().with(layer), || {
            let _span = tracing::info_span!("span", a = 1).entered();
            tracing::info!(target: "enrich::serve", "serving");
        });
        assert_eq!(lines(), "");
        let other = other();
        assert!(other.ends_with("INFO span{a=1}: enrich::serve: serving\n"), "{other}");
    }
}
