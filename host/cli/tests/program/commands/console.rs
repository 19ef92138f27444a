//! The web application of `enrich serve`.

use std::time::{Duration, Instant};

use super::*;
use crate::enrich::{dial, exchange, header};

/// The address of the client in the header of each request. It counts only if the server trusts a proxy.
pub const CLIENT: &str = "192.0.2.7";

/// A page of the web application, over plain HTTP.
pub struct Page {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Page {
    pub fn get(url: &str) -> Self {
        Self::request("GET", url, "", "")
    }

    /// Reads a page with the session that began with `sign_in`.
    pub fn get_in_session(url: &str, sign_in: &Self) -> Self {
        let cookie = sign_in.header("set-cookie").unwrap().split(';').next().unwrap();
        Self::request("GET", url, "", &format!("Cookie: {cookie}\r\n"))
    }

    /// Submits a form whose values contain only letters, digits, spaces and `@`, `.` or `-`.
    pub fn post(url: &str, form: &[(&str, &str)]) -> Self {
        let encoded = |value: &str| value.replace(' ', "+").replace('@', "%40");
        let fields = form.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        Self::request("POST", url, &fields.collect::<Vec<_>>().join("&"), "")
    }

    fn request(method: &str, url: &str, form: &str, headers: &str) -> Self {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let request = format!(
            "{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-Forwarded-For: {CLIENT}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n{headers}\r\n{form}",
            form.len()
        );
        let (status, head, body) = exchange(host.parse().unwrap(), &request);
        Self { status, head, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Signs in at the workspace `demo`, without a second factor.
pub fn sign_in(console: &str, email: &str, password: &str) -> Page {
    Page::post(&format!("{console}/w/demo/sign-in"), &[("email", email), ("password", password)])
}

#[test]
fn serves_pages_beside_lookups_until_both_stop() {
    let (enrich, key) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let console = server.console_url();
    assert_ne!(console, server.url);
    let page = Page::get(&format!("{console}/sign-in"));
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").is_some() && page.body.contains("<form"), "{}", page.body);
    assert_eq!(page.header("strict-transport-security"), None);
    assert_eq!(status(&server, &key, EMAIL), 404);
    let log = server.stop();
    assert!(log.contains(&format!("web application url={console}")) && log.ends_with("stopped\n"), "{log}");
    let address: std::net::SocketAddr = console.strip_prefix("http://").unwrap().parse().unwrap();
    assert!(dial(address).is_err(), "the web application still listens");
}

/// More clients than the listener accepts at once send nothing.
#[test]
fn silent_clients_delay_no_page() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let console = server.console_url();
    let address = console.strip_prefix("http://").unwrap().parse().unwrap();
    let _silent: Vec<_> = (0..600).map(|_| dial(address).unwrap()).collect();
    let started = Instant::now();
    assert_eq!(Page::get(&format!("{console}/sign-in")).status, 200);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
