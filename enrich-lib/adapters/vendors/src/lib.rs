//! How a vendor is called. [`provider`] is a resolver for the HTTP API of any vendor, which a description in
//! TOML defines. [`middleware`] wraps resolvers of any kind: fallback between paid vendors, and protection
//! against vendors that are slow, failing or overloaded. Neither uses the other.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod middleware;
pub mod provider;

/// Takes the limits of the description, and the default of each other setting.
impl From<&provider::Description> for middleware::VendorPolicy {
    fn from(description: &provider::Description) -> Self {
        let (limits, mut policy) = (description.limits(), Self::default());
        policy.timeout = description.deadline();
        policy.concurrency = limits.concurrency;
        policy.tries_max = limits.tries;
        policy
    }
}
