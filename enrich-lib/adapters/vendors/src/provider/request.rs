//! Requests to a vendor.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::template::{JsonTemplate, Placeholder, Template, Values};

/// A request with placeholders.
#[derive(Clone, PartialEq)]
pub(crate) struct RequestShape {
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Option<JsonTemplate>,
}

/// Headers that the client controls. Setting them in a description could enable request smuggling, or lead to
/// a compressed response, which the client cannot read.
const RESERVED_HEADERS: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// An invalid setting and the reason.
type InvalidSetting = (String, String);

impl RequestShape {
    pub(crate) fn new(
        method: Method,
        url: &str,
        headers: &BTreeMap<String, String>,
        body: Option<&str>,
    ) -> Result<Self, InvalidSetting> {
        let shape = Self {
            url: parse_url(url).map_err(invalid("request.url"))?,
            headers: headers
                .iter()
                .map(|(name, value)| parse_header(name, value))
                .collect::<Result<_, _>>()?,
            body: body.map(JsonTemplate::parse).transpose().map_err(invalid("request.body"))?,
            method,
        };
        if shape.body.is_some() && shape.method == Method::GET {
            return Err(invalid("request.body")("must not be set with the method GET".to_owned()));
        }
        if !shape.has(Placeholder::Email) && !shape.has(Placeholder::EmailSha256) {
            let why = "or request.body must contain {email} or {email_sha256}";
            return Err(invalid("request.url")(why.to_owned()));
        }
        Ok(shape)
    }

    /// Returns whether the request contains the key.
    pub(crate) fn takes_secret(&self) -> bool {
        self.has(Placeholder::Secret) || self.headers.iter().any(|(_, value)| value.has(Placeholder::Secret))
    }

    fn has(&self, placeholder: Placeholder) -> bool {
        self.url.has(placeholder) || self.body.as_ref().is_some_and(|body| body.has(placeholder))
    }

    /// Returns the headers, which are the same for every request.
    ///
    /// # Errors
    ///
    /// Returns the name of a header in which the secret contains invalid characters.
    pub(crate) fn headers(&self, secret: &str) -> Result<HeaderMap, HeaderName> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // RFC 9110, 10.1.5. Some firewalls reject requests without it. It names no version.
        headers.insert(USER_AGENT, HeaderValue::from_static("enrich"));
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let values = Values { email: "", email_sha256: "", secret };
        for (name, value) in &self.headers {
            let mut filled = HeaderValue::try_from(value.fill(&values)).map_err(|_| name.clone())?;
            // Keeps the value out of `Debug` output and of HPACK's dynamic table.
            filled.set_sensitive(value.has(Placeholder::Secret));
            headers.insert(name.clone(), filled);
        }
        Ok(headers)
    }

    /// Returns the request for one person, with `headers` from [`RequestShape::headers`].
    pub(crate) fn fill(
        &self,
        values: &Values<'_>,
        headers: &HeaderMap,
    ) -> Result<Request<Bytes>, http::Error> {
        let body = self.body.as_ref().map(|body| Bytes::from(body.fill(values).to_string()));
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.url.fill_url(values))
            .body(body.unwrap_or_default())?;
        headers.clone_into(request.headers_mut());
        Ok(request)
    }
}

/// Returns a function for `map_err` that adds the name of the invalid `setting`.
fn invalid(setting: &str) -> impl FnOnce(String) -> InvalidSetting + use<> {
    let setting = setting.to_owned();
    |why| (setting, why)
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, Template), InvalidSetting> {
    let setting = format!("request.headers.{name}");
    let invalid = |why: &str| (setting.clone(), why.to_owned());
    let parsed: HeaderName = name.parse().map_err(|_| invalid("is not a valid header name"))?;
    if RESERVED_HEADERS.contains(&parsed.as_str()) {
        return Err(invalid("must not be set; the client controls the connection and the encoding"));
    }
    let template = Template::parse(value, &[Placeholder::Secret]).map_err(|why| invalid(&why))?;
    let sample = template.fill(&Values { email: "", email_sha256: "", secret: "x" });
    HeaderValue::try_from(sample).map_err(|_| invalid("has a character that is not allowed in a header"))?;
    Ok((parsed, template))
}

/// Parses a URL: https, or http to this machine. The host cannot contain placeholders.
fn parse_url(text: &str) -> Result<Template, String> {
    let template = Template::parse(text, &Placeholder::ALL)?;
    let with =
        |value| template.fill_url(&Values { email: value, email_sha256: value, secret: value }).parse();
    let (Ok(uri), Ok(other)): (Result<Uri, _>, Result<Uri, _>) = (with("x"), with("y")) else {
        return Err("is not a valid URL".to_owned());
    };
    if uri.authority() != other.authority() {
        return Err("must not have a placeholder in its host".to_owned());
    }
    // `Uri` drops a fragment.
    if text.contains('#') || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must not have a fragment, a user or a password".to_owned());
    }
    // `Uri` ignores an invalid port.
    let has_valid_port = |authority: &Authority| {
        authority.as_str() == authority.host() || authority.port_u16().is_some_and(|port| port > 0)
    };
    if !uri.authority().is_none_or(has_valid_port) {
        return Err("must have a port from 1 to 65535, or none".to_owned());
    }
    let host = uri.host().unwrap_or_default();
    if uri.scheme() == Some(&Scheme::HTTPS) && !host.is_empty()
        || uri.scheme() == Some(&Scheme::HTTP) && is_loopback(host)
    {
        Ok(template)
    } else {
        Err("must start with https://, or with http:// and localhost, 127.0.0.1 or [::1]".to_owned())
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}
