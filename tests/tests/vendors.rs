//! All kinds of vendor responses, with the resulting reply, credits and log lines.
//!
//! A client never sees the cause of a vendor failure: "The service could not complete resolver work for this request"
//! (specification 7).
//!
//! A binary of its own, because the test captures the log of the whole process.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use enrich_middleware::VendorPolicy;
use enrich_provider::{Client, Description, Provider, SecretSource};
use enrich_tests::blackbox::{TIMEOUT, TestServer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// An email that is not in the people directory.
const EMAIL: &str = "Bea.Marlowe+news@gmail.com";
const SECRET: &str = "s3cr3t-k3y";
const URL: &str = "https://www.linkedin.com/in/bea-marlowe";

/// The behaviour of a vendor after it has received a request.
enum VendorResponse {
    /// Sends this and closes the connection.
    Sends(String),
    /// Sends this and resets the connection.
    Resets(String),
    /// Sends nothing until the client gives up.
    Hangs,
}

fn http(status: u16, content_type: &str, body: &str) -> VendorResponse {
    VendorResponse::Sends(format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}

fn json_of(body: &serde_json::Value) -> VendorResponse {
    http(200, "application/json", &body.to_string())
}

/// The expected result of a lookup.
enum Expected {
    Found,
    NotFound,
    /// A failure with this text in the log.
    Fails(&'static str),
}

use Expected::{Fails, Found, NotFound};

fn table() -> Vec<(&'static str, VendorResponse, Expected)> {
    let redirect =
        "HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/?to=bea.marlowe\r\ncontent-length: 0\r\n\r\n";
    let half = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"url\":";
    let large = json!({ "url": URL, "more": "x".repeat(300 * 1024) });
    let url = |url: &str| json_of(&json!({ "url": url, "score": 90 }));
    let status = |status| http(status, "application/json", "{\"error\":\"bea.marlowe has no url\"}");
    vec![
        ("a match", url(URL), Found),
        ("a match at an address of another form", url("http://de.linkedin.com/in/bea-marlowe/?trk=1"), Found),
        ("null", json_of(&json!({ "url": null })), NotFound),
        ("too little confidence", json_of(&json!({ "url": URL, "score": 79 })), NotFound),
        ("404, which means no match", status(404), NotFound),
        ("400", status(400), Fails("status 400: the vendor rejected the request")),
        ("401", status(401), Fails("status 401: the vendor rejected the API key")),
        ("402", status(402), Fails("status 402: the vendor account has no credits left")),
        ("403", status(403), Fails("status 403: the vendor rejected the API key")),
        ("429", status(429), Fails("status 429: the vendor's rate limit is exceeded")),
        ("500", status(500), Fails("status 500: the vendor is unavailable")),
        ("503", status(503), Fails("status 503: the vendor is unavailable")),
        ("a redirect", VendorResponse::Sends(redirect.to_owned()), Fails("status 302: ")),
        ("HTML", http(200, "text/html", "<p>bea.marlowe"), Fails("the response is not valid JSON")),
        ("bad JSON", http(200, "application/json", "{\"url\": bea"), Fails("the response is not valid JSON")),
        ("no number", json_of(&json!({ "url": URL, "score": "sure" })), Fails("/score is not a number")),
        ("too much", json_of(&large), Fails("the response body exceeds 262144 bytes")),
        (
            "a reset in mid-body",
            VendorResponse::Resets(half.to_owned()),
            Fails("the response body is incomplete"),
        ),
        (
            "a reset at once",
            VendorResponse::Resets(String::new()),
            Fails("the connection closed before a response"),
        ),
        (
            "no HTTP",
            VendorResponse::Sends("bea.marlowe\r\n\r\n".to_owned()),
            Fails("the connection closed before"),
        ),
        ("another host", url("https://linkedin.evil.example/in/bea-marlowe"), Fails("/url is not a profile")),
        ("a script", url("javascript:alert(1)//linkedin.com/in/bea"), Fails("/url is not a profile")),
        ("a company", url("https://www.linkedin.com/company/bea-marlowe"), Fails("/url is not a profile")),
        ("nothing", VendorResponse::Hangs, Fails("the vendor did not respond in time")),
    ]
}

/// Runs one lookup with one vendor for each kind of response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_vendor_response_has_its_reply_price_and_log_line() {
    let log = Log::start();
    for (what, response, expected) in table() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Only the vendor that hangs has a short deadline, so that a slow machine causes no other timeout.
        let deadline_ms = if matches!(response, VendorResponse::Hangs) { 300 } else { 20_000 };
        let vendor = vendor(listener.local_addr().unwrap(), deadline_ms);
        let serving = tokio::spawn(serve(listener, response));
        let server = TestServer::start_with(|settings| {
            let timeout = Duration::from_millis(deadline_ms);
            let policy = VendorPolicy { timeout, tries_max: 1, ..VendorPolicy::default() };
            settings.vendor = Some((Arc::new(vendor), policy));
        })
        .await;
        let client = server.client(5).await;
        log.take();
        let reply = timeout(TIMEOUT, client.look_up(EMAIL)).await.unwrap();
        let lines = log.take();

        let spent = match &expected {
            Found => {
                assert_eq!(
                    (reply.status, &reply.json()["profile"]["linkedin_url"]),
                    (200, &json!(URL)),
                    "{what}"
                );
                1
            }
            NotFound => {
                assert_eq!((reply.status, &reply.json()["status"]), (404, &json!("not_found")), "{what}");
                0
            }
            Fails(_) => {
                reply.assert_error(502, "lookup_error");
                0
            }
        };
        assert_eq!(server.balance(&client.workspace), (5 - spent, 0, spent), "{what}");
        match expected {
            Fails(fault) => {
                assert!(
                    lines.contains("enrich::vendor") && lines.contains("vendor=\"acme\""),
                    "{what}: {lines}"
                );
                assert!(lines.contains(fault), "{what}: {fault}: {lines}");
            }
            Found | NotFound => assert!(!lines.contains("enrich::vendor"), "{what}: {lines}"),
        }
        assert!(lines.contains(&client.workspace.id.to_string()), "the lookup is logged: {lines}");
        let lines = lines.to_lowercase();
        for secret in ["marlowe", "gmail", SECRET, "linkedin.com/in", &client.workspace.key.to_lowercase()] {
            assert!(!lines.contains(secret), "{what}: {secret} in the log: {lines}");
        }
        serving.abort();
    }
}

fn vendor(address: SocketAddr, deadline_ms: u64) -> Provider {
    let text = format!(
        "name = \"acme\"\nbills = \"requests\"\n\
         [request]\nmethod = \"POST\"\nurl = \"http://{address}/people\"\nbody = '{{ \"email\": \"{{email}}\" }}'\n\
         headers = {{ Authorization = \"Bearer {{secret}}\" }}\n\
         [secret]\nenv = \"ACME_KEY\"\n\
         [answer]\nprofile = [\"/url\"]\nconfidence = {{ at = \"/score\", scale = \"0-100\", min = 0.8 }}\n\
         [statuses]\nno_match = [404]\n\
         [limits]\ntries = 1\ndeadline_ms = {deadline_ms}\n"
    );
    let files = tempfile::TempDir::new().unwrap();
    let key = files.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let description = Description::parse(&text).unwrap().with_secret(SecretSource::File(key)).unwrap();
    Provider::new(description, Client::new().unwrap()).unwrap()
}

/// Serves every connection: checks that the request has the secret and the email, then responds with `response`.
async fn serve(listener: TcpListener, response: VendorResponse) {
    while let Ok((mut tcp, _)) = listener.accept().await {
        let request = read_request(&mut tcp).await;
        assert!(request.contains(SECRET) && request.contains("\"bea.marlowe+news@gmail.com\""), "{request}");
        match &response {
            VendorResponse::Sends(text) => {
                // The client may close the connection first.
                let _ = tcp.write_all(text.as_bytes()).await;
                let _ = tcp.shutdown().await;
                let _ = tcp.read_to_end(&mut Vec::new()).await;
            }
            VendorResponse::Resets(text) => {
                tcp.write_all(text.as_bytes()).await.unwrap();
                tcp.set_zero_linger().unwrap();
            }
            VendorResponse::Hangs => drop(tcp.read_to_end(&mut Vec::new()).await),
        }
    }
}

/// Reads a request up to the brace that ends its body.
async fn read_request(tcp: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"}") && tcp.read_buf(&mut bytes).await.unwrap() > 0 {}
    String::from_utf8(bytes).unwrap()
}

/// The log of this process, captured in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// Returns the log since the last call.
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.lock())).unwrap()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
