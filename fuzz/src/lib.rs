//! The fuzz targets as plain functions, so that stable Rust can replay their corpora.
//!
//! Each function accepts arbitrary bytes and panics if the service violates an invariant.
//!
//! [`email`] · [`http`] a connection · [`people`] an import.

#![forbid(unsafe_code)]

mod email;
mod http;
mod people;

pub use crate::email::email;
pub use crate::http::http;
pub use crate::people::people;
