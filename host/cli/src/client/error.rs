//! The errors of a request, as text with advice.

use std::error::Error;
use std::io;

use enrich_net::sources;
use rustix::io::Errno;

use super::tls;
use crate::output;

/// The reason why a request has no response.
pub enum RequestError {
    /// No connection could be made, or the server does not speak HTTP, so no lookup was executed.
    Unreachable(Cause),
    /// The connection failed. The lookup may or may not have been executed.
    Disconnected(Cause),
    /// The timeout expired. The lookup may or may not have been executed.
    TimedOut,
}

/// The root cause of a failed connection, as printable text.
pub struct Cause {
    pub text: String,
    pub advice: Option<&'static str>,
}

impl Cause {
    /// Describes the root cause of an error.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let chain = sources(error);
        if let Some(error) = chain.clone().find_map(|error| error.downcast_ref()) {
            let (text, advice) = tls::describe(error);
            return Self { text: text.to_owned(), advice };
        }
        if is_not_http(error) {
            return Self {
                text: "the server does not speak HTTP on this port".to_owned(),
                advice: Some("use an https:// URL if the server has TLS"),
            };
        }
        let root = chain.last();
        let code = root.and_then(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
        let advice = match code.map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE) => "lower --concurrency or raise `ulimit -n`",
            _ => "start a server with `enrich serve`, or use the URL of a running one (http:// or https://)",
        };
        let text = root.map_or_else(String::new, ToString::to_string);
        Self { text: output::printable(&text), advice: Some(advice) }
    }
}

/// Returns whether the reply is not HTTP, for example a TLS alert. hyper distinguishes this error by its text only.
pub fn is_not_http(error: &(dyn Error + 'static)) -> bool {
    let mut errors = sources(error).filter_map(|error| error.downcast_ref::<hyper::Error>());
    errors.any(|error| error.is_parse() && error.to_string().contains("invalid HTTP version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_on_open_files_has_its_own_advice() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let cause = Cause::from_error(&io::Error::from(errno));
            assert_eq!(cause.advice, Some("lower --concurrency or raise `ulimit -n`"), "{}", cause.text);
        }
    }
}
