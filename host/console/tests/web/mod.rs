//! The web application over HTTP. The tests follow OWASP ASVS 5.0, level 2.
//!
//! The binaries `web_sqlite` and `web_postgres` run them, each on its own store.

mod escaping;
mod guards;
mod headers;
mod keys;
mod links;
mod members;
mod passwords;
mod sessions;
mod sign_in;
mod site;
mod two_factor;
mod usage;
