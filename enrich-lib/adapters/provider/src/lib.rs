//! A resolver over any vendor's HTTP API. A vendor is described in TOML; no Rust is needed to add one.
//!
//! ```
//! use enrich_provider::{Bills, Description};
//!
//! let description = Description::parse(r#"
//! name = "acme"
//! bills = "matches"                  # or "asks"
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
//! [answer]                           # of a 200; the places are JSON pointers (RFC 6901)
//! profile = ["/person/linkedin_url", "/person/links/0"]    # the first that is there counts
//! profile_is = "url"                 # or "url_or_name", for ada-marlowe and in/ada-marlowe
//! confidence = { at = "/score", scale = "0-100", min = 0.8 }    # or "1-10", "0-1"; `min` is from 0 to 1
//! untrusted_if = [{ at = "/guessed", is = true }]
//!
//! [statuses]                         # what is not listed means what it means in HTTP
//! no_match = [404]
//! refused_key = [401]
//! out_of_credits = [402]
//! slow_down = [429]
//!
//! [limits]
//! deadline_ms = 8000                 # up to 20000
//! concurrency = 16                   # up to 1000
//! tries = 2                          # up to 5
//! "#)?;
//! assert_eq!((description.name(), description.bills()), ("acme", Bills::Matches));
//!
//! // Some are described already.
//! assert!(Description::ready_made("people-data-labs").is_some());
//! # Ok::<(), enrich_provider::SettingFaults>(())
//! ```
//!
//! `secret`, `answer.confidence`, `answer.untrusted_if`, `statuses` and `limits` can be left out.
//!
//! # What an answer is
//!
//! A 200 of type JSON, at most 256 KiB, whole within the deadline. Null, nothing or an empty text where the profile stands
//! is no match, and so is a match with too little confidence. Anything else that is not a person's profile at LinkedIn is a
//! bad answer, which is a failure and never "no match". No redirect is followed.
//!
//! # Layout
//!
//! Each module uses only those before it: `setting` what is wrong with one · `wording` of the parser's messages · `parse`
//! TOML with all its mistakes · `template` texts with places · `secret` the key · `request` how a vendor is asked · `answer`
//! what it says · `status` what its statuses mean · `description` all of it from TOML · `ready_made` · `client` HTTP ·
//! `fault` · `provider` the resolver.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod setting;

mod wording;

mod parse;

mod template;

mod secret;

mod request;

mod answer;

mod status;

mod description;

mod ready_made;

mod client;

mod fault;

mod provider;

pub use client::{Client, ClientFault};
pub use description::{Bills, Description, Limits};
pub use parse::parse_toml;
pub use provider::{Provider, ProviderFault, Trial};
pub use secret::{Secret, SecretFault, SecretSource};
pub use setting::{SettingFault, SettingFaults};
