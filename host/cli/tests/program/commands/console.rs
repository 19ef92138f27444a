//! The web application of `enrich serve`.

use crate::enrich::{exchange, header};

/// The address of the client in the header of each request. It counts only if the server trusts a proxy.
pub const CLIENT: &str = "192.0.2.7";

/// The password of each user.
pub const PASSWORD: &str = "correct horse battery staple";

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

/// Uses the link of an invitation.
pub fn join(link: &str) -> Page {
    Page::post(link, &[("password", PASSWORD), ("again", PASSWORD)])
}

/// Signs in at the workspace `demo`, without a second factor.
pub fn sign_in(console: &str, email: &str, password: &str) -> Page {
    Page::post(&format!("{console}/w/demo/sign-in"), &[("email", email), ("password", password)])
}
