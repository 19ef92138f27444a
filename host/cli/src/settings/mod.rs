//! The settings of `enrich serve`: its file, overridden by flags and environment variables.
//!
//! - `range`: numbers and their valid ranges
//! - `url_source`: URLs, which may be in a variable or another file
//! - `client_address`: the client's address in the log
//! - `admin`: the admin listener
//! - `console`: the web application
//! - `emails`: which emails are looked up
//! - `vendors`: the vendors to query
//! - `file`: the settings file; `example.toml` has all settings with their defaults
//! - `certificate`: the certificate of the listeners
//! - `locations`: the locations of the stores
//! - `variables`: unknown environment variables
//! - `resolve`: the merged settings
//! - `shared`: the settings that other commands use

mod admin;
mod certificate;
mod client_address;
mod console;
mod emails;
mod file;
mod locations;
mod range;
mod resolve;
mod shared;
mod url_source;
mod variables;
mod vendors;

pub use self::certificate::{expires_at, validity_of};
pub use self::file::PeopleConfig;
pub use self::locations::WindowStore;
pub use self::resolve::Settings;
pub use self::shared::SharedSettings;

/// A settings file with all settings and their defaults.
pub const EXAMPLE: &str = include_str!("example.toml");
