//! Addresses and passed sockets in settings.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use serde::de::{self, Deserialize, Deserializer, Visitor};

const EXAMPLES: &str = "expected an address and a port, such as 127.0.0.1:8080, localhost:8080 or 8080, or a passed socket, such as fd://3";

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Address(SocketAddr),
    /// A listening socket of the parent process: the number of its file descriptor, or its name.
    Passed(String),
}

impl Listen {
    /// The prefix of a passed socket.
    const PASSED: &str = "fd://";

    /// Returns the address. Only the process that receives a passed socket knows the address of the socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Passed(_) => None,
        }
    }

    /// Returns the URL of the address, or the passed socket.
    pub fn url(&self, scheme: &str) -> String {
        match self {
            Self::Address(address) => format!("{scheme}://{address}"),
            Self::Passed(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Passed(socket) => write!(f, "{}{socket}", Self::PASSED),
        }
    }
}

/// Parses an address or a passed socket.
fn parse(text: &str) -> Result<Listen, String> {
    let Some(socket) = text.strip_prefix(Listen::PASSED) else { return address(text).map(Listen::Address) };
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    if socket.is_empty() || !socket.bytes().all(is_name) {
        return Err(EXAMPLES.to_owned());
    }
    Ok(Listen::Passed(socket.to_owned()))
}

/// Parses an address. A port alone, with or without a colon, and `localhost` mean 127.0.0.1. Resolves other
/// names, which may block on DNS.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = Some(port).filter(|port| port.bytes().all(|c| c.is_ascii_digit()));
    let port = port.filter(|port| !port.is_empty()).ok_or(EXAMPLES)?;
    let port: u16 = port.parse().map_err(|_| format!("port {port} is out of range; the largest is 65535"))?;
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    if !host.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_')) {
        return Err(EXAMPLES.to_owned());
    }
    let unresolved = |why: &dyn fmt::Display| format!("cannot resolve the name `{host}`: {why}; {EXAMPLES}");
    let mut addresses = (host, port).to_socket_addrs().map_err(|e| unresolved(&e))?;
    addresses.next().ok_or_else(|| unresolved(&"it has no address"))
}

/// A string, or an integer as a port.
impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Address;

        impl Visitor<'_> for Address {
            type Value = Listen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address and a port")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listen, E> {
                parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Listen, E> {
                self.visit_str(&port.to_string())
            }
        }

        deserializer.deserialize_any(Address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_a_port_alone_a_name_and_an_address() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("LocalHost:80", "127.0.0.1:80"),
            ("0.0.0.0:443", "0.0.0.0:443"),
            ("[::1]:443", "[::1]:443"),
        ] {
            assert_eq!(parse(text), Ok(Listen::Address(address.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn accepts_a_passed_socket_by_number_and_name() {
        for socket in ["3", "enrich", "enrich-console.socket"] {
            let listen = parse(&format!("fd://{socket}")).unwrap();
            assert_eq!(listen, Listen::Passed(socket.to_owned()));
            assert_eq!(listen.url("http"), format!("fd://{socket}"));
        }
    }

    #[test]
    fn shows_examples_for_anything_else() {
        for text in [
            "",
            ":",
            "localhost",
            "127.0.0.1",
            "+80",
            "-1",
            "::1:80",
            "http://x:80",
            "no name:1",
            "fd://",
            "fd://a:b",
        ] {
            assert_eq!(parse(text), Err(EXAMPLES.to_owned()), "{text}");
        }
        for text in ["65536", "127.0.0.1:99999", ":99999999999999999999"] {
            assert!(parse(text).unwrap_err().ends_with("is out of range; the largest is 65535"), "{text}");
        }
        let error = parse("no-such-name.invalid:80").unwrap_err();
        assert!(error.contains("no-such-name.invalid") && error.ends_with(EXAMPLES), "{error}");
    }
}
