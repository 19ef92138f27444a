//! Records the service's log lines of all levels in the trace.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use crate::event::{Event, LogLine};
use crate::trace::Trace;

/// A subscriber for the service's own crates. Events of other libraries are ignored.
pub(crate) struct LogRecorder(pub(crate) Trace);

impl Subscriber for LogRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("enrich")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let mut fields =
            Fields { line: format!("{} {}", metadata.level(), metadata.target()), ..Fields::default() };
        event.record(&mut fields);
        let lookup_end = fields.lookup_id.and_then(|id| id.parse().ok()).zip(fields.status);
        self.0.record(Event::Logged(LogLine { text: fields.line, lookup_end, outcome: fields.outcome }));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields {
    line: String,
    lookup_id: Option<String>,
    status: Option<u16>,
    outcome: Option<String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &value);
        if field.name() == "outcome" {
            self.outcome = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a `String` cannot fail.
        let _ = write!(self.line, " {}={value:?}", field.name());
        if field.name() == "lookup_id" {
            self.lookup_id = Some(format!("{value:?}"));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_debug(field, &value);
        if field.name() == "status" {
            self.status = u16::try_from(value).ok();
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.record_debug(field, &value),
        }
    }
}
