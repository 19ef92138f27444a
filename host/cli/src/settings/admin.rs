//! `[admin]`: the admin listener.

use serde::Deserialize;

use crate::listen::{self, Listen};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// The address to listen on. Without it, there is no admin listener: two servers on one machine must not compete for a
    /// default port.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: Option<Listen>,
}
