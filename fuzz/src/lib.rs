//! The fuzz targets as plain functions, so that stable Rust can replay their corpora.
//!
//! Each function accepts arbitrary bytes and panics if the service violates an invariant.
//!
//! In the order of `enrich-lib`'s modules: [`key`] · [`email`] · [`body`] · [`http`] a connection ·
//! [`people`] an import.

#![forbid(unsafe_code)]

mod key;

mod email;

mod body;

mod http;

mod people;

pub use crate::body::body;
pub use crate::email::email;
pub use crate::http::http;
pub use crate::key::key;
pub use crate::people::people;
