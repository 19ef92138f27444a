//! The web application of the person enrichment service (specification 5.3 and 5.4): users sign in, create,
//! list, rotate and revoke API keys, and view usage, members and the audit log.
//!
//! [`serve`] runs it on its own listener. It reads and writes accounts only through
//! [`enrich_store::Accounts`].
//!
//! Pages are rendered on the server and work without JavaScript. The stylesheet and the script are part of
//! each page, and the Content-Security-Policy allows nothing else.

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
