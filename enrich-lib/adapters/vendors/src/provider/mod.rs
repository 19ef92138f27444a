//! A resolver for the HTTP API of any vendor. Vendors are described in TOML, so that adding one needs no Rust
//! code.
//!
//! ```
//! use enrich_vendors::middleware::VendorPolicy;
//! use enrich_vendors::provider::{Bills, Description};
//!
//! let description = Description::parse(r#"
//! name = "acme"
//! bills = "matches"                  # or "requests"
//!
//! [request]
//! method = "POST"                    # or "GET", without a body
//! url = "https://api.acme.example/v1/people?depth=1"
//! headers = { Authorization = "Bearer {secret}" }
//! body = '{ "email": "{email}" }'    # JSON; in its strings and in the URL: {email}, {email_sha256}, {secret}
//!
//! [secret]
//! env = "ACME_API_KEY"               # or file = "/run/secrets/acme"
//!
//! [answer]                           # a response with status 200, read with JSON pointers (RFC 6901)
//! profile = ["/person/linkedin_url", "/person/links/0"]    # the first present value counts
//! profile_is = "url"                 # or "url_or_name", for ada-marlowe and in/ada-marlowe
//! confidence = { at = "/score", scale = "0-100", min = 0.8 }    # or "1-10", "0-1"; `min` is from 0 to 1
//! untrusted_if = [{ at = "/guessed", is = true }]
//! failed_if = ["/error"]             # a value here is a failure of the vendor
//!
//! [statuses]                         # other statuses have their HTTP meaning
//! no_match = [404]
//! key_rejected = [401]
//! out_of_credits = [402]
//! rate_limited = [429]
//!
//! [limits]
//! deadline_ms = 8000                 # up to 20000
//! concurrency = 16                   # up to 1000
//! tries = 2                          # up to 5
//! "#)?;
//! assert_eq!((description.name(), description.bills()), ("acme", Bills::Matches));
//!
//! // The middleware enforces the limits.
//! assert_eq!(VendorPolicy::from(&description).concurrency, 16);
//!
//! // Descriptions of some vendors are built in.
//! assert!(Description::built_in("people-data-labs").is_some());
//! # Ok::<(), enrich_vendors::provider::SettingError>(())
//! ```
//!
//! `secret`, `answer.confidence`, `answer.untrusted_if`, `answer.failed_if`, `statuses` and `limits` are
//! optional.
//!
//! # Interpretation of answers
//!
//! An answer is a 200 with a JSON body of at most 256 KiB that is complete within the deadline. Its content
//! type is ignored, because many APIs send JSON as `text/plain`, or without a type. A profile that is null,
//! missing or an empty string is no match, and so is a match with too little confidence. Any other value that
//! is not a LinkedIn profile of a person is a failure, and never "no match". So is a body that is null, or
//! whose values on the way to the profile have another type, and a value at a pointer of `untrusted_if` of
//! another type than `is`, unless it is null. A value at a pointer of `failed_if` is a failure, unless it is
//! null, false or empty. Other values are not read. Redirects are not followed.
//!
//! A circuit breaker does not count failures by values in a JSON body of the described form: they may be about
//! one person, and a client could repeat them.
//!
//! # Traces
//!
//! If the request of a lookup has a trace context, each request to the vendor continues it in its header
//! `traceparent`, with the same trace id and flags and an id of its own. `tracestate` is unchanged.
//!
//! Modules are declared in reading order; each uses only those before it.

mod setting;
mod wording;
mod parse;
mod template;
mod secret;
mod request;
mod pointer;
mod answer;
mod status;
mod description;
mod built_in;
mod client;
mod error;
mod trace;
mod resolver;

pub use client::{Client, ClientError};
pub use description::{Bills, Description, Limits};
pub use parse::{parse_table, read_table};
pub use resolver::{Provider, ProviderError, Trial};
pub use secret::{Secret, SecretError, SecretSource};
pub use setting::SettingError;
pub use wording::nearest;
