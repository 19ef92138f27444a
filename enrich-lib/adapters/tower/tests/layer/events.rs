//! The events of the default observer.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use enrich_tower::EnrichLayer;
use http::Request;
use tower::{Layer, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::{Broken, PATH, Unreachable, key, layer, lookup, people, service};

/// Collects events as lines of text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "enrich_tower"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Line(String);

        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                // Ids and durations differ in each run.
                if !["lookup_id", "request_id", "duration_us"].contains(&field.name()) {
                    write!(self.0, " {}={value:?}", field.name()).unwrap();
                }
            }
        }

        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn lookups_and_failed_ports_are_events_of_tracing_without_personal_data() {
    let lines = Lines::default();
    // With only one dispatcher, `tracing` disables a callsite that the thread of another test reaches first.
    let _second = Dispatch::new(lines.clone());
    let _guard = tracing::subscriber::set_default(lines.clone());
    let (working, _) = service(people());
    let mut failing = working;
    failing.keys = Arc::new(Unreachable);
    layer().layer(Router::new()).oneshot(lookup()).await.unwrap();
    EnrichLayer::new(failing).layer(Router::new()).oneshot(lookup()).await.unwrap();
    EnrichLayer::new(service(Arc::new(Broken)).0).layer(Router::new()).oneshot(lookup()).await.unwrap();
    layer().layer(Router::new()).oneshot(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
    let key_id = key().digest().key_id();
    assert_eq!(
        *lines.0.lock().unwrap(),
        [
            &format!(
                "DEBUG message=lookup finished outcome=\"found\" status=200 workspace=demo key={key_id} credits_spent=1"
            ),
            "ERROR message=port failed step=\"identify\" error=called: called",
            "DEBUG message=lookup finished outcome=\"server_error\" status=500 credits_spent=0",
            "ERROR message=port failed step=\"resolve\" error=the port panicked",
            &format!(
                "DEBUG message=lookup finished outcome=\"lookup_error\" status=502 workspace=demo key={key_id} credits_spent=0"
            ),
            "DEBUG message=request rejected status=405",
        ]
    );
}
