//! A fake vendor with configurable behaviour. It records its requests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use super::Enrich;
use super::http::{self, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Matches every email, with the profile of this name.
    Matches(&'static str),
    NoMatch,
    /// Replies with this status.
    Fails(u16),
    /// Does not reply until the behavior changes, then replies according to the new one.
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
    behavior: Behavior,
    /// The heads of all requests.
    requests: Vec<String>,
    in_flight: usize,
    in_flight_max: usize,
}

impl Vendor {
    pub fn that(behavior: Behavior) -> Self {
        let state = Mutex::new(State { behavior, requests: Vec::new(), in_flight: 0, in_flight_max: 0 });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let replying = shared.clone();
        Self { address: http::start(move |head, _| replying.reply(head)), shared }
    }

    pub fn set(&self, behavior: Behavior) {
        self.shared.state.lock().unwrap().behavior = behavior;
        self.shared.changed.notify_all();
    }

    pub fn requests(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Returns the largest number of requests that were in progress at once.
    pub fn in_flight_max(&self) -> usize {
        self.shared.state.lock().unwrap().in_flight_max
    }

    /// Writes a configuration file with these settings, in which this vendor is the only source.
    pub fn configure(&self, enrich: &Enrich, settings: &str) -> PathBuf {
        self.describe(enrich, "acme", "s3cret");
        enrich.file("enrich.toml", format!("{settings}\n[[vendors]]\nfile = \"acme.toml\"\n"))
    }

    /// Writes the description `NAME.toml` and the secret `NAME.key`.
    pub fn describe(&self, enrich: &Enrich, name: &str, secret: &str) {
        enrich.file(&format!("{name}.toml"), self.description(name));
        enrich.file(&format!("{name}.key"), secret);
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
    fn reply(&self, head: &str) -> Reply {
        let mut state = self.state.lock().unwrap();
        state.requests.push(head.to_owned());
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        let state = self.changed.wait_while(state, |state| state.behavior == Behavior::Hangs).unwrap();
        let behavior = state.behavior;
        drop(state);
        self.state.lock().unwrap().in_flight -= 1;
        let (status, body) = match behavior {
            Behavior::Matches(name) => (200, format!("{{\"url\":\"https://www.linkedin.com/in/{name}\"}}")),
            Behavior::NoMatch | Behavior::Hangs => (404, "{}".to_owned()),
            Behavior::Fails(status) => (status, "{}".to_owned()),
        };
        Some((status, String::new(), body))
    }
}
