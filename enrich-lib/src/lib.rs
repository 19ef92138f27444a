//! Person enrichment as a deterministic library: takes a person's email and returns the person's LinkedIn
//! profile.
//!
//! The library implements validation, the order of the checks, the burst limit and the credits. It does no
//! I/O, reads no clock and generates no randomness. A [`lookup::Lookup`] is a state machine whose states
//! request data, the four [`ports`] supply the data, and [`drive::Service`] connects the two.
//!
//! # Quick start
//!
//! ```sh
//! cargo add --path ../enrich/enrich-lib
//! cargo add http futures-executor rand
//! ```
//!
//! A complete `main.rs`. A gateway uses its own runtime instead of `futures-executor`:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::SystemTime;
//!
//! use enrich_lib::drive::Service;
//! use enrich_lib::email::Email;
//! use enrich_lib::key::ApiKey;
//! use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
//! use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
//! use enrich_lib::window::{Quota, Workspace};
//! use enrich_lib::wire;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A workspace with a key, 10 credits and 500 requests a minute, and a directory of one person.
//!     let demo = Workspace::new("demo".parse()?, Quota::new(500, 60)?);
//!     let key = ApiKey::generate(rand::random);
//!     let (keys, windows) = (Arc::new(KeyTable::default()), Arc::new(WindowTable::default()));
//!     let (credits, people) = (Arc::new(AccountTable::default()), Arc::new(Directory::default()));
//!     credits.grant(&demo.id, 10)?;
//!     keys.insert(key.digest(), demo);
//!     people.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//!
//!     let service = Service::new(keys, windows, credits, people);
//!
//!     // The request that the server received:
//!     let mut headers = http::HeaderMap::new();
//!     headers.insert("authorization", format!("Bearer {}", key.reveal()).parse()?);
//!     headers.insert("content-type", "application/json".parse()?);
//!     let body = Ok(r#"{"email":"Ada.Marlowe+shop@gmail.com"}"#.into());
//!
//!     // The caller supplies the time and the random bytes:
//!     let unix_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
//!     let arrival = Arrival::new(Timestamp::from_unix_ms(unix_ms), rand::random());
//!     let reply = futures_executor::block_on(service.answer(arrival, wire::request(&headers, body)));
//!
//!     let response = wire::response(&reply);
//!     assert_eq!(response.status(), 200);
//!     let body = str::from_utf8(response.body())?;
//!     assert!(body.starts_with(r#"{"lookup_id":"lookup_"#));
//!     assert!(body.ends_with(r#""profile":{"linkedin_url":"https://www.linkedin.com/in/ada-marlowe"}}"#));
//!     Ok(())
//! }
//! ```
//!
//! # Guide
//!
//! [Embed the library](guide::embed) · [write a port](guide::port) · [write a vendor](guide::vendor) ·
//! [test your gateway](guide::test)
//!
//! # Responsibilities
//!
//! | the gateway provides | the library provides |
//! |---|---|
//! | the server, which reads requests and writes responses | each response, to the byte: [`wire`] |
//! | the four stores, or those of the adapter crates | the arithmetic: [`window`], [`credit`] |
//! | the clock and the randomness: one [`model::Arrival`] per request | the order of the checks: [`lookup`] |
//! | the runtime, which completes a lookup after its client disconnects | the error code of each failure: [`refusal`] |
//!
//! The layer of `enrich-tower` provides the clock and the randomness, and uses a tokio runtime to complete lookups.
//!
//! Types that may grow are `#[non_exhaustive]`. Create such a value with `new` or `default`, and assign its
//! other fields. An enum that a gateway must match completely is exhaustive and says so.
//!
//! In this documentation, "specification" means the specification of the HTTP interface. Sentences in
//! quotation marks are quoted from it. Behaviour that the specification leaves open is marked "decided";
//! `DECISIONS.md` gives the reasons.
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// Implements `Debug` for types whose values must not appear in a log.
macro_rules! redacted_debug {
    ($($name:ident),*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    )*};
}

pub mod model;
pub mod key;
pub mod email;
pub mod body;
pub mod window;
pub mod receipt;
pub mod credit;
pub mod context;
pub mod query;
pub mod refusal;
pub mod resolver;
pub mod ports;
pub mod lookup;
pub mod observe;
pub mod drive;
pub mod wire;
mod sync;
mod sharded_map;
pub mod memory;
pub mod guide;
