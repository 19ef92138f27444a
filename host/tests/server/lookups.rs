//! Lookups under failures: slow or panicking resolvers, disconnected clients.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use tokio::sync::Notify;
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{good, head};
use crate::world::{World, key, profile};

/// A resolver that signals each call and completes when it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Notify, Notify)>);

impl Gate {
    pub async fn asked(&self) {
        self.0.0.notified().await;
    }

    pub fn open(&self) {
        self.0.1.notify_one();
    }
}

#[async_trait]
impl Resolver for Gate {
    async fn find(&self, _: &Query) -> Result<Option<ProfileUrl>, PortError> {
        self.0.0.notify_one();
        self.0.1.notified().await;
        Ok(Some(profile()))
    }
}

/// A resolver that panics on its first call.
#[derive(Default)]
struct Unstable(AtomicBool);

#[async_trait]
impl Resolver for Unstable {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        assert!(self.0.swap(true, Ordering::Relaxed), "can't take {}", query.email.canonical());
        Ok(None)
    }
}

struct Failing;

#[async_trait]
impl Resolver for Failing {
    async fn find(&self, _: &Query) -> Result<Option<ProfileUrl>, PortError> {
        Err(PortError::new(std::io::Error::other(PortError::new("the vendor is away"))))
    }
}

#[tokio::test(start_paused = true)]
async fn settles_a_lookup_whose_client_disconnected() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = world.connect();
    client.send(good()).await;
    gate.asked().await;
    assert_eq!(world.balance().held, 1);
    drop(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.open();
    world.stop.cancel();
    world.host.await.unwrap();
    let balance = world.accounts.balance(&crate::world::demo());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn panic_is_500_and_keeps_the_connection() {
    let log = Log::default();
    let _guard = log.capture();
    let world = World::with_resolver(Unstable::default());
    let mut client = world.connect();
    let reply = client.ask(good()).await;
    assert_eq!((reply.status, reply.body.as_str()), (500, r#"{"error":"server_error"}"#));
    assert_eq!(client.ask(good()).await.status, 404);
    let told = log.lines();
    assert!(told.contains("ERROR enrich::lookup") && told.contains(r#"error="panicked""#), "{told}");
    assert!(!told.contains("ada"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn logs_one_event_per_lookup_without_personal_data() {
    let log = Log::default();
    let _guard = log.capture();
    let world = World::new();
    let mut client = world.connect();
    client.ask(good()).await;
    client.ask(good().replace("enr_", "enr-")).await;
    let told = log.lines();
    let events: Vec<_> = told.lines().collect();
    assert!(events[0].starts_with(
        r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680070008000000000000000 workspace="demo" outcome="found" status=200 credits=1 duration_us="#
    ), "{told}");
    assert!(events[1].starts_with(
        r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680071018101010101010101 outcome="unauthorized" status=401 credits=0 duration_us="#
    ), "{told}");
    assert_eq!(events.len(), 2);
    for secret in ["ada", "gmail", "linkedin", &key().reveal().to_string()[5..]] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_a_port_failure_with_all_sources() {
    let log = Log::default();
    let _guard = log.capture();
    let world = World::with_resolver(Failing);
    assert_eq!(world.connect().ask(good()).await.status, 502);
    let told = log.lines();
    assert!(told.contains(" WARN enrich::lookup") && told.contains("the vendor is away"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn logs_the_reason_of_an_invalid_request_without_its_values() {
    let world = World::new();
    for (body, reason) in [
        ("{secret", "the body is not one JSON object"),
        (r#"{"email":"ada@gmail.com","secret":1}"#, "the body has a field other than email"),
        (r#"{"email":["secret"]}"#, "the email is missing or no string"),
        (r#"{"email":"secret"}"#, "the email has no local part followed by an @"),
        (r#"{"email":"secret@-.com"}"#, "the part after the @ is no domain name"),
        (r#"{"email":"secret@mailinator.com"}"#, "the email's provider is disposable"),
    ] {
        let log = Log::default();
        let _guard = log.capture();
        let request = format!("{}content-length: {}\r\n\r\n{body}", head(), body.len());
        assert_eq!(world.connect().ask(request).await.status, 400);
        let logged = log.lines();
        assert!(logged.contains(&format!("reason=\"{reason}\"")), "{logged}");
        assert!(!logged.contains("secret") && !logged.contains("gmail"), "{logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn lookups_without_a_valid_key_are_logged_once_per_interval_and_counted() {
    let log = Log::default();
    let _guard = log.capture();
    let world = World::new();
    let mut client = world.connect();
    for (lookups, counts) in [(3, vec![2]), (1, vec![2]), (5, vec![2, 4])] {
        for _ in 0..lookups {
            client.ask(good().replace("enr_", "enr-")).await;
            client.ask(good()).await;
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        let counted = counts.iter().map(|count| format!("count={count}")).collect::<Vec<_>>();
        let logged = log.lines();
        let reports =
            logged.lines().filter_map(|line| line.split(' ').find(|word| word.starts_with("count=")));
        assert_eq!(reports.collect::<Vec<_>>(), counted, "{logged}");
    }
    let logged = log.lines();
    assert_eq!(logged.matches("status=401").count(), 3, "{logged}");
    assert_eq!(logged.matches("workspace=\"demo\"").count(), 9, "{logged}");
}

/// Captures the log of this thread at info level and above.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let log = tracing_subscriber::fmt().with_writer(self.clone()).without_time().with_ansi(false);
        tracing::subscriber::set_default(log.finish())
    }

    fn lines(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
