//! Server URLs that may contain a password.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use enrich_redis::RedisUrl;

/// The URL of a server. `Display`, `Debug` and error messages never contain its password.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("ServerUrl({self})")]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Returns the whole URL, including the password. Use it only to connect.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Accepts any text and removes white space around it, because a file with a secret ends with a line break. An
/// invalid URL is reported when connecting, because the command line parser would quote it, including its
/// password, in the error.
impl FromStr for ServerUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

/// Formats the URL as `scheme://user@host:port/path`. Omits the password and the query parameters, which may
/// contain the password. Shows only the scheme of a URL that cannot be used: any part may be the password.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str("…") };
        // Splits at the last `@`: an unencoded `@`, `/` or `?` before it belongs to the password. If there is
        // no user name before it, the `@` may belong to an option.
        let (login, location) =
            rest.rsplit_once('@').map_or((None, rest), |(login, location)| (Some(login), location));
        let location = location.split(['?', '#']).next().unwrap_or_default();
        let is_port = |(_, port): (&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
        let mut hosts = location.split('/').next().unwrap_or_default().split(',');
        let is_usable = match scheme {
            "postgres" | "postgresql" => {
                hosts.all(|host| host.ends_with(']') || host.rsplit_once(':').is_none_or(is_port))
            }
            _ => self.0.parse::<RedisUrl>().is_ok(),
        };
        let user =
            login.map(|login| login.split(':').next().unwrap_or_default()).filter(|user| !user.is_empty());
        match user {
            _ if !is_usable => write!(f, "{scheme}://…"),
            Some(user) if user.contains(['@', '/', '?', '#']) => write!(f, "{scheme}://…"),
            Some(user) => write!(f, "{scheme}://{user}@{location}"),
            None => write!(f, "{scheme}://{location}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            (
                "postgres://enrich:hunter2@db.internal:5432/accounts",
                "postgres://enrich@db.internal:5432/accounts",
            ),
            ("postgres://enrich:hunt@er/2?@db/accounts?sslmode=require", "postgres://enrich@db/accounts"),
            ("postgresql://db/accounts?user=enrich&password=hunter2", "postgresql://db/accounts"),
            ("postgresql://db/accounts?user=enrich&password=hunt@er2", "postgresql://…"),
            ("redis://:hunter2@redis.internal", "redis://redis.internal"),
            ("postgres://db,[::1]:5433/accounts", "postgres://db,[::1]:5433/accounts"),
            ("postgres://enrich:hunter2/accounts", "postgres://…"),
            ("rediss://hunter2@redis.internal", "rediss://…"),
            ("redis://enrich:hunter2", "redis://…"),
            ("redis://:hunter2", "redis://…"),
            ("redis://enrich:hunter2/redis.internal", "redis://…"),
            ("redis://redis.internal/hunter2", "redis://…"),
            ("redis+cluster://b:hunter2,h2", "redis+cluster://…"),
            ("redis+cluster://a:hunter2@h1,b:hunter2@h2", "redis+cluster://…"),
            ("redis+cluster://a:hunter2@h1,h2:7000", "redis+cluster://a@h1,h2:7000"),
            ("redis+unix://:hunter2@/run/redis.sock", "redis+unix:///run/redis.sock"),
            ("redis://redis.internal:6379/2", "redis://redis.internal:6379/2"),
            ("host=db password=hunter2", "…"),
            ("postgres://db/accounts\n", "postgres://db/accounts"),
        ] {
            let url: ServerUrl = url.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("ServerUrl({shown})"));
        }
    }
}
