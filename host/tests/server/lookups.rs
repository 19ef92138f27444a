//! Lookups under failures: slow or panicking resolvers, disconnected clients.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use tokio::sync::Notify;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{request_head, valid_request};
use crate::test_server::{TestServer, key, profile};

/// A resolver that signals each call and completes when it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Notify, Notify)>);

impl Gate {
    pub async fn called(&self) {
        self.0.0.notified().await;
    }

    pub fn open(&self) {
        self.0.1.notify_one();
    }
}

#[async_trait]
impl Resolver for Gate {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        self.0.0.notify_one();
        self.0.1.notified().await;
        Ok(profile().into())
    }
}

/// A resolver that panics on its first call.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

#[async_trait]
impl Resolver for PanicsOnce {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        assert!(self.0.swap(true, Ordering::Relaxed), "cannot look up {}", query.email.canonical());
        Ok(Answer::default())
    }
}

struct Failing;

#[async_trait]
impl Resolver for Failing {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        Err(PortError::new(std::io::Error::other(PortError::new("the vendor is unavailable"))))
    }
}

#[tokio::test(start_paused = true)]
async fn settles_lookup_whose_client_disconnects() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = server.connect();
    client.write(valid_request()).await;
    gate.called().await;
    assert_eq!(server.balance().held, 1);
    drop(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.open();
    server.stop.cancel();
    server.task.await.unwrap();
    let balance = server.accounts.balance(&crate::test_server::workspace());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_lookup_becomes_500_and_keeps_the_connection_open() {
    let log = Log::default();
    let _guard = log.capture();
    let server = TestServer::with_resolver(PanicsOnce::default());
    let mut client = server.connect();
    let reply = client.send(valid_request()).await;
    assert_eq!((reply.status, reply.body.as_str()), (500, r#"{"error":"server_error"}"#));
    assert_eq!(client.send(valid_request()).await.status, 404);
    let logged = log.lines();
    assert!(logged.contains("ERROR enrich::lookup") && logged.contains(r#"error="panicked""#), "{logged}");
    assert!(logged.contains(&format!("lookup_id={}", reply.header("request-id").unwrap())), "{logged}");
    assert!(!logged.contains("ada"), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn logs_one_event_per_lookup_without_personal_data() {
    let log = Log::default();
    let _guard = log.capture();
    let server = TestServer::new();
    let mut client = server.connect();
    client.send(valid_request()).await;
    client.send(valid_request().replace("enr_", "enr-")).await;
    let logged = log.lines();
    let events: Vec<_> = logged.lines().collect();
    let key_id = key().digest().key_id();
    let starts = [
        format!(
            r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680070008000000000000000 workspace="demo" key={key_id} outcome="found" status=200 credits=1 duration_us="#
        ),
        r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680071018101010101010101 outcome="unauthorized" status=401 credits=0 duration_us="#.to_owned(),
    ];
    assert!(events.iter().zip(&starts).all(|(event, start)| event.starts_with(start)), "{logged}");
    assert!(events[1].ends_with(r#" reason="key-missing-or-malformed""#), "{logged}");
    assert_eq!(events.len(), 2);
    for secret in ["ada", "gmail", "linkedin", &key().reveal().to_string()[5..]] {
        assert!(!logged.contains(secret), "{logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_a_port_error_with_its_sources() {
    let log = Log::default();
    let _guard = log.capture();
    let server = TestServer::with_resolver(Failing);
    assert_eq!(server.connect().send(valid_request()).await.status, 502);
    let logged = log.lines();
    assert!(
        logged.contains(" WARN enrich::lookup") && logged.contains("the vendor is unavailable"),
        "{logged}"
    );
}

#[tokio::test(start_paused = true)]
async fn logs_the_reason_of_an_invalid_request_without_its_values() {
    let server = TestServer::new();
    for (body, reason) in [
        ("{secret", "malformed-json"),
        (r#"{"email":"ada@gmail.com","secret":1}"#, "unknown-field"),
        (r#"{"email":["secret"]}"#, "email-missing"),
        (r#"{"email":"secret"}"#, "email-syntax"),
        (r#"{"email":"secret@-.com"}"#, "email-syntax"),
        (r#"{"email":"secret@mailinator.com"}"#, "disposable-domain"),
    ] {
        let log = Log::default();
        let _guard = log.capture();
        let request = format!("{}content-length: {}\r\n\r\n{body}", request_head(), body.len());
        assert_eq!(server.connect().send(request).await.status, 400);
        let logged = log.lines();
        assert!(logged.contains(&format!("reason=\"{reason}\"")), "{logged}");
        assert!(!logged.contains("secret") && !logged.contains("gmail"), "{logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_lookups_without_a_valid_key_once_per_interval_with_a_count() {
    let log = Log::default();
    let _guard = log.capture();
    let server = TestServer::new();
    let mut client = server.connect();
    for (lookups, counts) in [(3, vec![2]), (1, vec![2]), (5, vec![2, 4])] {
        for _ in 0..lookups {
            client.send(valid_request().replace("enr_", "enr-")).await;
            client.send(valid_request()).await;
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        let expected = counts.iter().map(|count| format!("count={count}")).collect::<Vec<_>>();
        let logged = log.lines();
        let reports =
            logged.lines().filter_map(|line| line.split(' ').find(|word| word.starts_with("count=")));
        assert_eq!(reports.collect::<Vec<_>>(), expected, "{logged}");
    }
    let logged = log.lines();
    assert_eq!(logged.matches("status=401").count(), 3, "{logged}");
    assert_eq!(logged.matches("workspace=\"demo\"").count(), 9, "{logged}");
}

/// Captures the log of this thread.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// A second subscriber. While there is only one, `tracing` asks the thread that reaches a line first, which
/// may have none, and then disables the line on all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

impl Log {
    /// Captures lines at info level and above.
    pub fn capture(&self) -> DefaultGuard {
        self.capture_from(LevelFilter::INFO)
    }

    pub fn capture_debug(&self) -> DefaultGuard {
        self.capture_from(LevelFilter::DEBUG)
    }

    fn capture_from(&self, level: LevelFilter) -> DefaultGuard {
        LazyLock::force(&SECOND);
        let log = tracing_subscriber::fmt().with_writer(self.clone()).without_time().with_ansi(false);
        set_default(log.with_max_level(level).finish())
    }

    pub fn lines(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the ids of the lookups whose clients received no reply.
    pub fn unanswered(&self) -> Vec<String> {
        let lines = self.lines();
        let unanswered = lines.lines().filter(|line| line.contains("without a reply"));
        let ids = unanswered.map(|line| line.split_once("lookup_id=").unwrap().1);
        ids.map(|id| id.split(' ').next().unwrap().to_owned()).collect()
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
