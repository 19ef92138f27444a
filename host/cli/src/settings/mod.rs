//! The settings, from the settings file, environment variables and flags.
//!
//! - `range`: ranges of numbers
//! - `text_source`: URLs and keys, which may be in a variable or another file
//! - `client_address`: the client's address
//! - `vendor_config`: `[[vendors]]`
//! - `config`: all settings
//! - `example`: the settings file with all defaults, and the list of variables
//! - `variables`: environment variables
//! - `layers`: the sources of settings, which are merged
//! - `emails`: which emails are looked up
//! - `vendors`: the vendors to query
//! - `convert`: the values that the server takes from the settings
//! - `certificate`: the certificate of the listeners
//! - `locations`: the locations of the stores
//! - `resolve`: the checked settings of `serve`
//! - `shared`: the settings that other commands use

pub mod certificate;
mod client_address;
mod config;
mod convert;
mod emails;
mod example;
mod layers;
mod locations;
mod range;
mod resolve;
mod shared;
mod text_source;
mod variables;
mod vendor_config;
mod vendors;

pub use self::example::{EXAMPLE, variable_rows};
pub use self::layers::Layers;
pub use self::locations::{PeopleLocation, WindowStore};
pub use self::resolve::{Settings, with_sources};
pub use self::shared::SharedSettings;

#[cfg(test)]
mod tests;
