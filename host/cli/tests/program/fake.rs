//! A fake server with configurable replies.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

/// A reply: status, raw header lines and body. `None` closes the connection instead.
pub type Reply = Option<(u16, String, String)>;

pub struct FakeServer {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

struct Request {
    received_at: Instant,
    email: String,
    idempotency_key: Option<String>,
}

impl FakeServer {
    /// Starts a server. `reply` receives the email and the number of earlier requests for it, in any case.
    pub fn start(reply: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (reply, all) = (Arc::new(reply), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (reply, all) = (reply.clone(), all.clone());
                // A killed client breaks its connections.
                std::thread::spawn(move || stream.and_then(|stream| serve(stream, &*reply, &all)));
            }
        });
        Self { url, requests }
    }

    /// Returns the emails of all requests, in order.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.email.clone()).collect()
    }

    pub fn request_times(&self) -> Vec<Instant> {
        self.requests.lock().unwrap().iter().map(|request| request.received_at).collect()
    }

    pub fn idempotency_keys(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().iter().flat_map(|request| request.idempotency_key.clone()).collect()
    }
}

/// Replies that the person is found.
pub fn found(email: &str) -> Reply {
    let name = email.split('@').next().unwrap().to_lowercase();
    let body = format!(
        r#"{{"lookup_id":"id-{name}","status":"found","profile":{{"linkedin_url":"https://www.linkedin.com/in/{name}"}}}}"#
    );
    Some((200, String::new(), body))
}

pub fn error(status: u16, code: &str, headers: &str) -> Reply {
    Some((status, headers.to_owned(), format!(r#"{{"error":"{code}"}}"#)))
}

fn serve(
    stream: TcpStream,
    reply: &(impl Fn(&str, usize) -> Reply + ?Sized),
    requests: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
        };
        let mut body = vec![0; header("content-length").unwrap().parse().unwrap()];
        stream.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let email = body["email"].as_str().unwrap().to_owned();
        let before = {
            let mut requests = requests.lock().unwrap();
            let before = requests.iter().filter(|other| other.email.eq_ignore_ascii_case(&email)).count();
            let idempotency_key = header("idempotency-key");
            requests.push(Request { received_at: Instant::now(), email: email.clone(), idempotency_key });
            before
        };
        let Some((status, headers, body)) = reply(&email, before) else { return Ok(()) };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}
