//! The settings, from the settings file, environment variables and flags.
//!
//! - `order`: the order of the settings in a table
//! - `text_source`: URLs and keys, which may be in a variable or another file
//! - `client_address`: the client's address
//! - `vendor_config`: `[[vendors]]`
//! - `config`: all settings
//! - `schema`: the JSON schema of the settings
//! - `variables`: environment variables
//! - `paths`: paths that no shell has expanded
//! - `layers`: the sources of settings, which are merged
//! - `print`: a settings file with all defaults, and the list of variables
//! - `emails`: which emails are looked up
//! - `vendors`: the vendors to query
//! - `convert`: the values that the server takes from the settings
//! - `certificate`: the certificate of the listeners
//! - `locations`: the locations of the stores
//! - `resolve`: the checked settings of `serve`
//! - `shared`: the settings that other commands use

mod certificate;
mod client_address;
mod config;
mod convert;
mod emails;
mod layers;
mod locations;
mod order;
mod paths;
mod print;
mod resolve;
mod schema;
mod shared;
mod text_source;
mod variables;
mod vendor_config;
mod vendors;

pub use self::certificate::{expires_at, validity_of};
pub use self::layers::{Layers, Merged};
pub use self::locations::{PeopleLocation, WindowStore};
pub use self::print::{example, variable_rows};
pub use self::resolve::{Settings, with_sources};
pub use self::schema::schema;
pub use self::shared::SharedSettings;

#[cfg(test)]
mod tests;
