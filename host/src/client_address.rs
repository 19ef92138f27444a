//! The client's address: that of the peer, or the one that a trusted proxy reports.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The source of the client's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// The address of the peer: the client, or a proxy in front of the server.
    #[default]
    Peer,
    /// The address in the header `Forwarded` (RFC 7239) of these proxies.
    Forwarded(Vec<IpNet>),
    /// The address in the header `X-Forwarded-For` of these proxies.
    XForwardedFor(Vec<IpNet>),
}

impl ClientAddress {
    /// Returns the address of the client that sent a request of `peer`.
    ///
    /// Every proxy appends the address of its own peer, so the header is read from its end: the first address
    /// that is not a trusted proxy is the client. What precedes it may be forged. If an address cannot be
    /// read, or if the peer is not a trusted proxy, the client is the peer.
    pub fn of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        let (proxies, header, read): (_, _, fn(&str) -> Option<IpAddr>) = match self {
            Self::Peer => return peer,
            Self::Forwarded(proxies) => (proxies, FORWARDED, forwarded_for),
            Self::XForwardedFor(proxies) => (proxies, X_FORWARDED_FOR, address),
        };
        let is_trusted = |address: IpAddr| proxies.iter().any(|network| network.contains(&address));
        let mut client = peer;
        for line in headers.get_all(header).iter().rev() {
            for entry in line.as_bytes().rsplit(|byte| *byte == b',') {
                if !is_trusted(client) {
                    return client;
                }
                let entry = str::from_utf8(entry.trim_ascii()).ok();
                let Some(address) = entry.and_then(read) else { return peer };
                client = address;
            }
        }
        client
    }
}

/// Returns the network of a client, which usually has a whole IPv6 network (/64).
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PROXY: &str = "10.0.0.1";

    /// The proxy as the peer of an IPv4 and of a dual-stack socket.
    const PEERS: [&str; 2] = [PROXY, "::ffff:10.0.0.1"];

    fn proxies() -> Vec<IpNet> {
        ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32"].map(|network| network.parse().unwrap()).into()
    }

    /// Returns the client of a request from `peer` with these header lines.
    fn client(setting: &ClientAddress, peer: &str, name: &'static str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        setting.of(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn peer_is_the_client_without_a_proxy() {
        let lines = ["203.0.113.9"];
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
            (&["\u{fc}, 203.0.113.9"], "203.0.113.9"),
            (&["203.0.113.9, \u{fc}"], PROXY),
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
            for peer in PEERS {
                assert_eq!(client(&setting, peer, "x-forwarded-for", lines), expected, "{peer} {lines:?}");
            }
        }
        assert_eq!(client(&setting, "6.6.6.6", "x-forwarded-for", &["203.0.113.9"]), "6.6.6.6");
        assert_eq!(client(&setting, PROXY, "forwarded", &["for=203.0.113.9"]), PROXY);
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
            for peer in PEERS {
                assert_eq!(client(&setting, peer, "forwarded", lines), expected, "{peer} {lines:?}");
            }
        }
    }
}
