//! Metrics of lookups and vendors, for Prometheus.
//!
//! [`LookupMetrics`] is an [`Observer`](enrich_lib::observe::Observer) that counts lookups, and
//! [`VendorMetrics`] counts the requests to vendors. A gateway registers both with a registry of its own:
//!
//! ```
//! use std::sync::Arc;
//!
//! use enrich_metrics::LookupMetrics;
//! use prometheus_client::encoding::text::encode;
//! use prometheus_client::registry::Registry;
//!
//! let lookups = Arc::new(LookupMetrics::default());
//! let mut registry = Registry::default();
//! lookups.register(&mut registry);
//! // Pass `lookups` to `Service::answer_with` or to the tower layer.
//! let mut text = String::new();
//! encode(&mut text, &registry).unwrap();
//! assert!(text.contains("enrich_lookups_total{outcome=\"found\"} 0\n"));
//! ```
//!
//! No label contains an email, key, profile or workspace.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod exposition;
mod lookups;
mod vendors;

pub use lookups::LookupMetrics;
pub use vendors::VendorMetrics;
