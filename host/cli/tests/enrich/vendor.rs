//! A fake vendor with configurable behaviour. It records its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Matches every email, with the profile of this name.
    Knows(&'static str),
    KnowsNobody,
    /// Matches every email after this delay.
    Slow(&'static str, Duration),
    /// Replies with this status.
    Fails(u16),
    /// Does not reply until the mood changes, then replies according to the new one.
    Hangs,
}

pub struct Vendor {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mood: Mood,
    /// The heads of all requests.
    asked: Vec<String>,
}

impl Vendor {
    pub fn that(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Mutex::new(State { mood, asked: Vec::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let vendor = Self { address, shared: shared.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(&stream.unwrap()));
            }
        });
        vendor
    }

    pub fn set(&self, mood: Mood) {
        self.shared.state.lock().unwrap().mood = mood;
        self.shared.changed.notify_all();
    }

    pub fn asked(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().asked.clone()
    }

    /// Returns a vendor description that reads the secret from the file `NAME.key` next to it.
    pub fn description(&self, name: &str) -> String {
        format!(
            "name = \"{name}\"\nbills = \"matches\"\n\
             [request]\nmethod = \"GET\"\nurl = \"http://{}/?email={{email}}\"\n\
             headers = {{ X-Key = \"{{secret}}\" }}\n\
             [secret]\nfile = \"{name}.key\"\n\
             [answer]\nprofile = [\"/url\"]\n\
             [statuses]\nno_match = [404]\n\
             [limits]\ntries = 1\n",
            self.address
        )
    }
}

impl Shared {
    /// Serves the requests of one connection.
    fn serve(&self, mut stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        loop {
            let head: Vec<_> =
                lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            if head.is_empty() {
                return;
            }
            let mut state = self.state.lock().unwrap();
            state.asked.push(head.join("\n"));
            let state = self.changed.wait_while(state, |state| state.mood == Mood::Hangs).unwrap();
            let (status, body) = match state.mood {
                Mood::Knows(name) | Mood::Slow(name, _) => {
                    (200, format!("{{\"url\":\"https://www.linkedin.com/in/{name}\"}}"))
                }
                Mood::KnowsNobody | Mood::Hangs => (404, "{}".to_owned()),
                Mood::Fails(status) => (status, "{}".to_owned()),
            };
            let latency = if let Mood::Slow(_, latency) = state.mood { latency } else { Duration::ZERO };
            drop(state);
            std::thread::sleep(latency);
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
