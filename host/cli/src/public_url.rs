//! The public URLs of the web application and of the API.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::Deserialize;

/// The URL under which others reach a listener: `https://HOST` or `https://HOST:PORT`, without a slash at the
/// end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Returns whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        self.0.split_once("://").and_then(|(_, authority)| host_of(authority)).is_some_and(is_local)
    }

    /// Returns the link with this path and token.
    pub fn link(&self, path: &str, token: &str) -> String {
        format!("{self}/{path}/{token}")
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = || "expected a URL without a path, such as https://enrich.example.com".to_owned();
        let text = text.strip_suffix('/').unwrap_or(text);
        let (scheme, authority) = text.split_once("://").ok_or_else(example)?;
        let host = host_of(authority).ok_or_else(example)?;
        match scheme {
            "https" => {}
            "http" if is_local(host) => {}
            "http" => {
                return Err("must begin with https://, except on this machine".to_owned());
            }
            _ => return Err(example()),
        }
        // As browsers send it in `Origin`.
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        Ok(Self(text.strip_suffix(default_port).unwrap_or(text).to_ascii_lowercase()))
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Returns the host of `HOST` or `HOST:PORT`, or `None` if the text is something else.
fn host_of(authority: &str) -> Option<&str> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_valid = address.parse::<Ipv6Addr>().is_ok();
        let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (is_valid && has_port).then_some(address);
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_host =
        !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-'));
    (is_host && port.is_none_or(is_port)).then_some(host)
}

/// Returns whether browsers trust plain HTTP from this host (W3C Secure Contexts, 3.1).
fn is_local(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_https_and_local_http() {
        for text in [
            "https://enrich.example.com",
            "https://enrich.example.com:8443",
            "https://[2001:db8::1]:8443",
            "http://localhost:8081",
            "http://127.0.0.1:8081",
            "http://[::1]:8081",
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().to_string(), text);
            assert_eq!(format!("{text}/").parse::<PublicUrl>().unwrap().to_string(), text);
        }
        for text in ["https://Enrich.example.com", "https://enrich.example.com:443/"] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().to_string(), "https://enrich.example.com");
        }
    }

    #[test]
    fn rejects_paths_logins_and_plain_http() {
        for text in [
            "",
            "https://",
            "enrich.example.com",
            "ftp://enrich.example.com",
            "https://enrich.example.com/console",
            "https://enrich.example.com//",
            "https://user@enrich.example.com",
            "https://enrich.example.com:0",
            "https://enrich.example.com:99999",
            "https://[::1",
            "https://a b",
        ] {
            assert!(text.parse::<PublicUrl>().unwrap_err().contains("https://enrich.example.com"), "{text}");
        }
        assert!(
            "http://enrich.example.com".parse::<PublicUrl>().unwrap_err().contains("begin with https://")
        );
    }
}
