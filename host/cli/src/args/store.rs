//! The settings file and the location of the data.

use std::path::PathBuf;

use crate::url::ServerUrl;

/// The settings file, which commands share with `enrich serve`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Settings file (TOML); flags and variables override it
    #[arg(long, value_name = "FILE", env = "ENRICH_CONFIG", global = true, help_heading = None::<&'static str>)]
    pub config: Option<PathBuf>,
}

impl From<ConfigArgs> for StoreArgs {
    fn from(file: ConfigArgs) -> Self {
        Self { data: DataArgs { file, data: None }, database: None }
    }
}

/// The data directory.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    #[command(flatten)]
    pub file: ConfigArgs,
    /// Data directory [default: ./enrich-data]
    #[arg(long, value_name = "DIR", env = "ENRICH_DATA", global = true)]
    pub data: Option<PathBuf>,
}

/// The location of the accounts: a data directory or a PostgreSQL server.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct StoreArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// PostgreSQL server with workspaces, keys and credits
    ///
    /// Replaces the accounts in the data directory. Other users of the machine can see arguments: set the variable instead
    /// if the URL contains a password.
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true, global = true)]
    pub database: Option<ServerUrl>,
}

/// The location of the people directory, and of the opt-outs that nodes share.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct PeopleArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// PostgreSQL server with the opt-outs of all nodes
    ///
    /// The people and `people.key` are in the data directory of each node. Other users of the machine can see arguments: set the
    /// variable instead if the URL contains a password.
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true, global = true)]
    pub database: Option<ServerUrl>,
}
