//! The web application of the person enrichment service (specification 5.3 and 5.4): users sign in, create,
//! list, rotate and revoke API keys, and view usage, members and the audit log.
//!
//! [`serve`] runs it on its own listener. It reads and writes accounts only through
//! [`enrich_store::Accounts`].
//!
//! Pages are rendered on the server and work without JavaScript. The stylesheet and the script are part of
//! each page, and the Content-Security-Policy allows nothing else.
//!
//! # Layout
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - [`reference`](mod@reference): the HTML reference of the API
//! - `refusals`: log lines about refused requests
//! - `blocking`: work on other threads
//! - `console`: the [`Config`], and access to the accounts
//! - `random`: secret tokens
//! - `password`, `totp`: the two factors of a sign-in
//! - `error`: errors as pages
//! - `extract`, `client`: what handlers take from a request
//! - `headers`: security headers
//! - `throttle`: limits on sign-in attempts
//! - `attempts`: attempts in the audit log
//! - `cookies`, `device`: cookies, and browsers that have signed in before
//! - `session`: sessions, and the user behind a request
//! - `pending`: sign-ins that wait for the code of the second factor
//! - `guard`: what a request must fulfil before its handler runs
//! - `view`: what all pages show
//! - `pages`: the pages, one module each
//! - `router`: routes with their guards, and layers
//! - `server`: connections, [`serve`]

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attempts;
mod blocking;
mod client;
mod console;
mod cookies;
mod device;
mod error;
mod extract;
mod guard;
mod headers;
mod pages;
mod password;
mod pending;
mod random;
pub mod reference;
mod refusals;
mod router;
mod server;
mod session;
mod throttle;
mod totp;
mod view;

pub use console::{Config, OpenAccounts};
pub use random::Token;
pub use router::{router, routes};
pub use server::{CONNECTIONS_MAX, serve};
