//! The settings, from the settings file, environment variables and flags.

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
pub use self::shared::{SAMPLE_CONSOLE, SharedSettings};

#[cfg(test)]
mod tests;
