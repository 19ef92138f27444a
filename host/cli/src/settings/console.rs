//! `[console]`: the web application.

use enrich_provider::{SettingError, SettingErrors};
use serde::Deserialize;

use crate::console_url::ConsoleUrl;
use crate::listen::{self, Listen};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleConfig {
    /// The address to listen on. Without it, there is no web application.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: Option<Listen>,
    /// The URL under which users reach it. Defaults to the scheme and address of the listener.
    pub url: Option<ConsoleUrl>,
    /// Whether a proxy in front of it sets `X-Forwarded-For`.
    pub forwarded: bool,
}

impl ConsoleConfig {
    pub fn check(&self, errors: &mut SettingErrors) {
        if self.listen.is_none() && *self != Self::default() {
            let why = "needs `listen`, such as \"127.0.0.1:8081\"; without it, there is no web application";
            errors.push(SettingError::new("console", why));
        }
    }

    /// Returns the URL of the web application, which listens there.
    pub fn url(&self, scheme: &str, listen: &Listen) -> String {
        self.url.as_ref().map_or_else(|| listen.url(scheme), ToString::to_string)
    }

    /// Returns the URL with which links begin, if the web application listens at `listen`. Fails if browsers could not use it.
    pub fn link_url(&self, scheme: &str, listen: &Listen) -> Result<ConsoleUrl, SettingError> {
        let is_specific = self.url.is_some() || listen.address().is_some_and(|it| !it.ip().is_unspecified());
        let url = self.url(scheme, listen);
        url.parse().ok().filter(|_| is_specific).ok_or_else(|| {
            let why = format!(
                "must be set, because links cannot begin with {url}; set it or ENRICH_CONSOLE_URL to the URL that users open, such as \
                 https://enrich.example.com, or http://127.0.0.1:8081 on this machine"
            );
            SettingError::new("console.url", why)
        })
    }

    /// Returns a warning if users cannot open the default URL.
    pub fn warning(&self) -> Option<String> {
        let listen = self.listen.as_ref().and_then(Listen::address);
        let listen = listen.filter(|listen| listen.ip().is_unspecified() && self.url.is_none())?;
        Some(format!(
            "console.url is not set, so invitations begin with the address {listen}; set it to the URL that users open"
        ))
    }
}
