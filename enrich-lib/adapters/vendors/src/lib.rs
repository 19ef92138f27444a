//! How a vendor is called. [`provider`] is a resolver for the HTTP API of any vendor, which a description in
//! TOML defines. [`middleware`] wraps resolvers of any kind: fallback between paid vendors, and protection
//! against vendors that are slow, failing or overloaded. Neither uses the other.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod middleware;
pub mod provider;
