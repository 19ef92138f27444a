//! The URL of a LinkedIn profile.

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The LinkedIn profile URL of a matched person (specification 2.2), in its canonical form:
/// `https://www.linkedin.com/in/` and the profile's name.
///
/// A profile URL is personal data: this type has no `Display`, and its `Debug` redacts it.
#[derive(Clone, PartialEq, Eq)]
pub struct ProfileUrl(String);

/// The reason why a text is not a valid [`ProfileUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProfileUrlError {
    /// The scheme is neither `http` nor `https`.
    #[error("not an https address")]
    Scheme,
    /// The host is neither `linkedin.com` nor one of its subdomains.
    #[error("not at linkedin.com")]
    Host,
    /// The path is not `/in/` and a name, but for example that of a company, a school or a search.
    #[error("not a person's profile: the path has to be /in/ and a name")]
    Path,
    /// The name is empty, too long, or has characters that are not allowed in a profile's name.
    #[error("not a person's profile: the name is empty, longer than 300 octets, or has invalid characters")]
    Name,
}

impl ProfileUrl {
    const PREFIX: &'static str = "https://www.linkedin.com/in/";
    const NAME_OCTETS_MAX: usize = 300;

    /// Parses a profile's URL and converts it to its canonical form. The scheme may be `http` or missing. A
    /// country's subdomain, the language after the name (`/de`), a trailing slash, a query and a fragment are
    /// dropped. Non-ASCII letters are percent-encoded.
    pub fn parse(text: &str) -> Result<Self, ProfileUrlError> {
        let url = text.trim().split(['?', '#']).next().unwrap_or_default();
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if ["https", "http"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) => rest,
            Some(_) => return Err(ProfileUrlError::Scheme),
            None => url,
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_linkedin(host) {
            return Err(ProfileUrlError::Host);
        }
        let name = path.strip_prefix("in/").ok_or(ProfileUrlError::Path)?;
        let name = name.strip_suffix('/').unwrap_or(name);
        match name.split_once('/') {
            None => Self::from_name(name),
            Some((name, language)) if is_language(language) => Self::from_name(name),
            Some(_) => Err(ProfileUrlError::Path),
        }
    }

    /// Creates the URL of the profile with this name, which is the last segment of the path.
    pub fn from_name(name: &str) -> Result<Self, ProfileUrlError> {
        if name.is_empty() || name.len() > Self::NAME_OCTETS_MAX {
            return Err(ProfileUrlError::Name);
        }
        let mut url = String::with_capacity(Self::PREFIX.len() + name.len());
        url.push_str(Self::PREFIX);
        let bytes = name.as_bytes();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() | matches!(byte, b'-' | b'_');
        // Checks every byte without early exit so that the loop vectorizes.
        if bytes.iter().fold(true, |all, byte| all & is_plain(*byte)) {
            url.push_str(name);
            return Ok(Self(url));
        }
        // Encoded characters must be allowed in a name too: an encoded slash or dot would lead to another page.
        let decoded = percent_decode_str(name).decode_utf8().map_err(|_| ProfileUrlError::Name)?;
        for byte in decoded.bytes() {
            match byte {
                0x80.. => url.push_str(&format!("%{byte:02X}")),
                _ if is_plain(byte) => url.push(char::from(byte)),
                _ => return Err(ProfileUrlError::Name),
            }
        }
        // Stores keep the encoded name and parse it again, so it must not exceed the maximum length either.
        if url.len() > Self::PREFIX.len() + Self::NAME_OCTETS_MAX {
            return Err(ProfileUrlError::Name);
        }
        Ok(Self(url))
    }

    /// Returns the whole URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the URL cannot be that of the matched person: its name is a placeholder such as `null`, or has
    /// invisible characters, as copied text often does. LinkedIn redirects `/in/me` to the profile of the signed-in user.
    pub fn names_nobody(&self) -> bool {
        let decoded = percent_decode_str(self.name()).decode_utf8_lossy();
        let placeholders = ["null", "undefined", "none", "me"];
        placeholders.iter().any(|name| decoded.eq_ignore_ascii_case(name)) || decoded.contains(is_invisible)
    }

    /// Returns the last segment of the path. [`ProfileUrl::from_name`] converts it to the same URL.
    pub fn name(&self) -> &str {
        &self.0[Self::PREFIX.len()..]
    }
}

/// Returns whether a path after a profile's name selects its language, such as `de` or `pt-br`.
fn is_language(path: &str) -> bool {
    let (language, region) = path.split_once(['-', '_']).unwrap_or((path, "xx"));
    [language, region].iter().all(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_alphabetic()))
}

/// Returns whether a character shows nothing. The joiners (U+200C and U+200D) are parts of words.
fn is_invisible(c: char) -> bool {
    let is_format = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    is_format || c.is_whitespace() || c.is_control()
}

fn is_linkedin(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host.strip_suffix("linkedin.com").is_some_and(|sub| {
        sub.is_empty()
            || sub
                .strip_suffix('.')
                .is_some_and(|label| !label.is_empty() && label.bytes().all(|c| c.is_ascii_lowercase()))
    })
}

redacted_debug!(ProfileUrl);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_profile_urls() {
        for text in [
            "https://www.linkedin.com/in/ada-marlowe",
            "http://linkedin.com/in/ada-marlowe/",
            "de.linkedin.com/in/ada-marlowe?trk=https://x.y#top",
            " HTTPS://UK.LinkedIn.com/in/ada-marlowe ",
            "linkedin.com/in/ada-marlowe/de/",
            "linkedin.com/in/ada-marlowe/pt-BR?x",
        ] {
            let url = ProfileUrl::parse(text).unwrap();
            assert_eq!(url.as_str(), "https://www.linkedin.com/in/ada-marlowe");
            assert_eq!(ProfileUrl::from_name(url.name()).as_ref(), Ok(&url));
        }
        for longest in ["x".repeat(300), "ë".repeat(50)] {
            assert!(ProfileUrl::from_name(&longest).is_ok(), "{longest}");
        }
        assert_eq!(ProfileUrl::parse("linkedin.com/in/zoë").unwrap().name(), "zo%C3%AB");
        assert_eq!(ProfileUrl::parse("linkedin.com/in/%7ao%C3%ab%2D1").unwrap().name(), "zo%C3%AB-1");
    }

    #[test]
    fn rejects_other_urls() {
        use ProfileUrlError::*;
        for (text, error) in [
            ("javascript://linkedin.com/in/x", Scheme),
            ("ftp://linkedin.com/in/x", Scheme),
            ("https://evil.example/in/x", Host),
            ("https://notlinkedin.com/in/x", Host),
            ("https://linkedin.com.evil.example/in/x", Host),
            ("https://user@linkedin.com/in/x", Host),
            ("https://.linkedin.com/in/x", Host),
            ("https://a.b.linkedin.com/in/x", Host),
            ("https://linkedin.com:8080/in/x", Host),
            ("", Host),
            ("https://linkedin.com", Path),
            ("https://linkedin.com/company/x", Path),
            ("https://linkedin.com/in/x/details/y", Path),
            ("https://linkedin.com/in/x/posts", Path),
            ("https://linkedin.com/in/x/de/y", Path),
            ("https://linkedin.com/in/x//", Path),
            ("https://linkedin.com/in/x/de-", Path),
            ("https://linkedin.com/in/", Name),
            ("https://linkedin.com/in/a%2", Name),
            ("https://linkedin.com/in/a\"b", Name),
            ("https://linkedin.com/in/%2E%2e", Name),
            ("https://linkedin.com/in/a%00", Name),
            ("https://linkedin.com/in/a%+f", Name),
            ("https://linkedin.com/in/ada%2Fdetails", Name),
            ("https://linkedin.com/in/ada%3Fx", Name),
            ("https://linkedin.com/in/ada%22%3c", Name),
            ("https://linkedin.com/in/a%2541", Name),
            ("https://linkedin.com/in/%ff%fe", Name),
            ("https://linkedin.com/in/a%é", Name),
            (&format!("linkedin.com/in/{}", "x".repeat(301)), Name),
            (&format!("linkedin.com/in/{}", "ë".repeat(51)), Name), // six octets each when percent-encoded
        ] {
            assert_eq!(ProfileUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn placeholders_and_invisible_characters_name_nobody() {
        let names_nobody = |name| ProfileUrl::from_name(name).unwrap().names_nobody();
        for name in ["null", "Undefined", "none", "me", "a\u{200b}", "a%E2%80%AEb", "a\u{a0}b", "\u{ad}a"] {
            assert!(names_nobody(name), "{name}");
        }
        assert!(!["nullmann", "zo%C3%AB", "نام\u{200c}ها", "👩\u{200d}🚀"].into_iter().any(names_nobody));
    }

    #[test]
    fn debug_output_hides_the_profile_url() {
        assert_eq!(format!("{:?}", ProfileUrl::from_name("ada").unwrap()), "ProfileUrl(…)");
    }
}
