//! Requests to the admin listener.

use std::net::SocketAddr;

use super::{eventually, exchange};

/// The argument of a server with an admin listener on a free port.
pub const ADMIN: &str = "ENRICH_ADMIN_LISTEN=127.0.0.1:0";

/// Sends a GET and returns the status and the body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = request(address, path, "");
    (status, body)
}

/// Sends a GET with additional header lines, each ended by CRLF. Returns the status, the head and the body.
pub fn request(address: SocketAddr, path: &str, headers: &str) -> (u16, String, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n"))
}

/// Waits until the server is ready.
pub fn wait_until_ready(address: SocketAddr) {
    eventually("the server is ready", || (get(address, "/readyz").0 == 200).then_some(()));
}

/// Waits until the check fails, and returns the reason.
pub fn wait_until_failed(address: SocketAddr, check: &str) -> String {
    let prefix = format!("[-]{check} failed: ");
    eventually(&format!("{check} fails"), || {
        let (status, body) = get(address, "/readyz");
        let reason = body.lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned));
        if reason.is_some() {
            assert_eq!(status, 503, "{body}");
        }
        reason
    })
}

/// The reply of `/metrics`.
pub struct Scrape(String);

impl Scrape {
    pub fn of(address: SocketAddr) -> Self {
        let (status, head, body) = request(address, "/metrics", "");
        assert_eq!(status, 200, "{body}");
        let media_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.contains(media_type), "{head}");
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        Self(body)
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Iterates over the samples: the name with labels, and the value.
    pub fn samples(&self) -> impl Iterator<Item = (&str, f64)> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').map(|(name, value)| (name, value.parse().unwrap())).unwrap())
    }

    /// Returns the value of a sample, such as `enrich_connections_max` or `enrich_connections{state="idle"}`.
    pub fn value(&self, sample: &str) -> Option<f64> {
        self.samples().find(|(name, _)| *name == sample).map(|(_, value)| value)
    }
}
