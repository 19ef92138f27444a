//! The client's address: that of the peer, or the one that a trusted proxy reports.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use thiserror::Error;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address that the log contains as a lookup's client. The default is none, because an address is
/// personal data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// No address.
    #[default]
    Off,
    /// The address of the peer: the client, or a proxy in front of the server.
    Peer,
    /// The address in the header `Forwarded` (RFC 7239) of these proxies.
    Forwarded(Vec<Network>),
    /// The address in the header `X-Forwarded-For` of these proxies.
    XForwardedFor(Vec<Network>),
}

impl ClientAddress {
    /// Returns the address to log for a request of `peer`.
    ///
    /// Every proxy appends the address of its own peer, so the header is read from its end: the first address
    /// that is not a trusted proxy is the client. What precedes it may be forged. If an address cannot be
    /// read, or if the peer is not a trusted proxy, the client is the peer.
    pub(crate) fn of(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let (proxies, header, read): (_, _, fn(&str) -> Option<IpAddr>) = match self {
            Self::Off => return None,
            Self::Peer => return Some(peer),
            Self::Forwarded(proxies) => (proxies, FORWARDED, forwarded_for),
            Self::XForwardedFor(proxies) => (proxies, X_FORWARDED_FOR, address),
        };
        let is_trusted = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
        let mut client = peer;
        for line in headers.get_all(header).iter().rev() {
            let Ok(line) = line.to_str() else { return Some(peer) };
            for entry in line.rsplit(',') {
                if !is_trusted(client) {
                    return Some(client);
                }
                let Some(address) = read(entry.trim()) else { return Some(peer) };
                client = address;
            }
        }
        Some(client)
    }
}

/// Returns the last address of `X-Forwarded-For`, which the nearest proxy added. Clients can forge the other
/// ones.
pub fn nearest_forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(X_FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    address(last.rsplit(',').next()?.trim())
}

/// Returns the network of a client, which usually has a whole IPv6 network (/64).
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => prefix(address.into(), 64),
        address => address,
    }
}

/// Reads the parameter `for` of one element of `Forwarded`. A quoted comma splits its element, which is then
/// malformed.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.find_map(|pair| pair.filter(|(name, _)| name.eq_ignore_ascii_case("for")))?;
    let quoted = node.strip_prefix('"').and_then(|node| node.strip_suffix('"'));
    address(quoted.unwrap_or(node))
}

/// Reads an address, with or without a port and the brackets of IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse().map(|address: SocketAddr| address.ip());
    bare.parse().or_else(|_| with_port()).ok().map(|address: IpAddr| address.to_canonical())
}

/// A network of addresses, such as `10.0.0.0/8`. An address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u8,
}

/// The error for a text that is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "must be an address or a network, such as \"10.0.0.0/8\" or \"fd00::/8\", without bits after its prefix"
)]
pub struct NetworkError;

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && prefix(address, self.prefix_bits) == self.first
    }
}

/// Clears the bits after the prefix.
fn prefix(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (first, bits) = text.split_once('/').map_or((text, None), |(first, bits)| (first, Some(bits)));
        let first: IpAddr = first.parse().map_err(|_| NetworkError)?;
        let bits_max = if first.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(bits_max), str::parse).map_err(|_| NetworkError)?;
        let is_valid = prefix_bits <= bits_max && prefix(first, prefix_bits) == first;
        if is_valid { Ok(Self { first, prefix_bits }) } else { Err(NetworkError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn proxies() -> Vec<Network> {
        ["10.0.0.0/8", "fd00::/8", "192.0.2.7"].map(|network| network.parse().unwrap()).into()
    }

    /// Returns the client of a request from `peer` with these header lines.
    fn client(setting: &ClientAddress, peer: &str, name: &'static str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, line.parse().unwrap());
        }
        setting.of(peer.parse().unwrap(), &headers).map_or_else(String::new, |address| address.to_string())
    }

    #[test]
    fn logs_no_address_or_that_of_the_peer() {
        let lines = ["203.0.113.9"];
        assert_eq!(client(&ClientAddress::Off, PROXY, "x-forwarded-for", &lines), "");
        assert_eq!(client(&ClientAddress::Peer, PROXY, "x-forwarded-for", &lines), PROXY);
        assert_eq!(client(&ClientAddress::Peer, "::ffff:1.2.3.4", "x-forwarded-for", &lines), "1.2.3.4");
    }

    #[test]
    fn x_forwarded_for_is_the_last_address_that_is_no_trusted_proxy() {
        let setting = ClientAddress::XForwardedFor(proxies());
        for (lines, expected) in [
            (&["203.0.113.9"][..], "203.0.113.9"),
            (&["6.6.6.6, 203.0.113.9"], "203.0.113.9"),
            (&["6.6.6.6", "203.0.113.9, 10.9.9.9"], "203.0.113.9"),
            (&["203.0.113.9,fd00::1 , 192.0.2.7"], "203.0.113.9"),
            (&["nonsense, 203.0.113.9"], "203.0.113.9"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["::ffff:203.0.113.9"], "203.0.113.9"),
            (&["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            (&[], PROXY),
            (&[""], PROXY),
            (&["203.0.113.9, unknown"], PROXY),
            (&["203.0.113.9, "], PROXY),
            (&["unknown, 10.2.2.2"], PROXY),
        ] {
            assert_eq!(client(&setting, PROXY, "x-forwarded-for", lines), expected, "{lines:?}");
        }
        assert_eq!(client(&setting, "6.6.6.6", "x-forwarded-for", &["203.0.113.9"]), "6.6.6.6");
        assert_eq!(client(&setting, PROXY, "forwarded", &["for=203.0.113.9"]), PROXY);
    }

    #[test]
    fn nearest_proxy_reports_the_last_address_with_or_without_a_port() {
        for (lines, expected) in [
            (&["6.6.6.6, 203.0.113.9"][..], Some("203.0.113.9")),
            (&["6.6.6.6", "203.0.113.9:4711"], Some("203.0.113.9")),
            (&["[2001:db8::1]:4711"], Some("2001:db8::1")),
            (&["203.0.113.9, unknown"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(nearest_forwarded_for(&headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_the_last_node_that_is_no_trusted_proxy() {
        let setting = ClientAddress::Forwarded(proxies());
        for (lines, expected) in [
            (&["for=203.0.113.9"][..], "203.0.113.9"),
            (&["for=6.6.6.6, proto=https;For=203.0.113.9;by=10.0.0.1"], "203.0.113.9"),
            (&["for=\"[2001:db8::1]:4711\"", "for=10.1.1.1"], "2001:db8::1"),
            (&["for=\"203.0.113.9:80\""], "203.0.113.9"),
            (&["for=203.0.113.9, for=_hidden"], PROXY),
            (&["for=203.0.113.9, by=10.0.0.1"], PROXY),
            (&["203.0.113.9"], PROXY),
        ] {
            assert_eq!(client(&setting, PROXY, "forwarded", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn network_has_a_prefix_without_further_bits() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1") && !contains("::/0", "203.0.113.9"));
        assert!(contains("10.128.0.0/9", "10.255.0.1") && !contains("10.128.0.0/9", "10.127.0.1"));
        assert!(contains("127.0.0.1", "127.0.0.1") && !contains("127.0.0.1", "127.0.0.2"));
        assert!(contains("2001:db8::/127", "2001:db8::1") && !contains("2001:db8::/127", "2001:db8::2"));
        for text in ["", "10", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.1/8", "::/129", "localhost"]
        {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
