//! Person enrichment as a deterministic library: one email of a person in, the person's LinkedIn profile out.
//!
//! The library owns validation, the order of checks, the burst limit and the credits. It does no I/O, reads no clock and
//! draws no randomness: a [`lookup::Lookup`] is a chain of states that asks questions, four [`ports`] answer
//! them, and [`drive::Service`] carries questions and answers between the two.
//!
//! # From nothing to a found lookup
//!
//! ```sh
//! cargo add enrich-lib http futures-executor
//! ```
//!
//! All of a `main.rs`; a gateway has its own runtime in the place of `futures-executor`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use enrich_lib::drive::Service;
//! use enrich_lib::email::Email;
//! use enrich_lib::key::ApiKey;
//! use enrich_lib::lookup::Policy;
//! use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
//! use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
//! use enrich_lib::window::{Quota, Workspace};
//! use enrich_lib::wire;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A workspace with a key, 10 credits and 500 requests a minute, and a directory of one person.
//!     let demo = Workspace { id: "demo".parse()?, quota: Quota::new(500, 60)? };
//!     let key = ApiKey::generate(|| 7); // in earnest: cryptographically strong random bytes
//!     let (keys, credits, people) = (KeyTable::default(), AccountTable::default(), Directory::default());
//!     credits.grant(&demo.id, 10)?;
//!     keys.insert(key.digest(), demo);
//!     people.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//!
//!     let service = Service {
//!         policy: Arc::new(Policy::default()),
//!         keys: Arc::new(keys),
//!         windows: Arc::new(WindowTable::default()),
//!         credits: Arc::new(credits),
//!         resolver: Arc::new(people),
//!     };
//!
//!     // What your server received:
//!     let mut headers = http::HeaderMap::new();
//!     headers.insert("authorization", format!("Bearer {}", key.reveal()).parse()?);
//!     headers.insert("content-type", "application/json".parse()?);
//!     let body = Ok(r#"{"email":"Ada.Marlowe+shop@gmail.com"}"#.into());
//!
//!     // The clock and the randomness are yours:
//!     let arrival = Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10]);
//!     let reply = futures_executor::block_on(service.answer(arrival, wire::request(&headers, body)));
//!
//!     let response = wire::response(&reply);
//!     assert_eq!(response.status(), 200);
//!     assert_eq!(
//!         response.body(),
//!         r#"{"lookup_id":"lookup_018bcfe5680077078707070707070707","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/ada-marlowe"}}"#
//!     );
//!     Ok(())
//! }
//! ```
//!
//! # What is yours, and what is ours
//!
//! | yours | ours |
//! |---|---|
//! | the server: bytes in, bytes out | what each request is answered, to the byte: [`wire`] |
//! | the four stores, or those of the adapter crates | the arithmetic: [`window`], [`credit`] |
//! | the clock and the randomness: one [`model::Arrival`] a request | the order of the checks: [`lookup`] |
//! | the runtime: a lookup whose client hangs up has to be finished | what a failure means: [`refusal`] |
//!
//! A gateway of tower services takes the layer of `enrich-tower`, which is all of the left side but the stores. One without
//! any async walks the chain by hand: see `examples/no_async.rs` and the first page of [`lookup`].
//!
//! "Specification" in this documentation is the one of the interface; a sentence in quotation marks is its own. What it leaves
//! open is "decided", each time for a reason that the README's table of decided gaps tells.
//!
//! # Layout
//!
//! In reading order: [`model`] the nouns · [`key`] · [`email`] · [`body`] · [`window`] the burst limit · [`credit`] ·
//! [`query`] · [`refusal`] the error codes · [`ports`] · [`lookup`] **the heart** · [`observe`] who is told of lookups · [`drive`] the
//! driver · [`wire`] HTTP · [`records`] what operators see · [`by_workspace`] a map for stores · [`memory`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod model;

pub mod key;

pub mod email;

pub mod body;

pub mod window;

pub mod credit;

pub mod query;

pub mod refusal;

pub mod ports;

pub mod lookup;

pub mod observe;

pub mod drive;

pub mod wire;

pub mod records;

mod sync;

pub mod by_workspace;

pub mod memory;
