//! The location of the data. These flags override settings.

/// The data directory.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// Data directory
    ///
    /// Takes precedence over a database in the settings.
    #[arg(long, value_name = "DIR", global = true)]
    pub data: Option<String>,
}

/// The location of the accounts: a data directory or a PostgreSQL server.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct StoreArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// PostgreSQL server with workspaces, keys, credits and people
    ///
    /// Replaces the data directory. Other users of the machine can see arguments: set the variable
    /// ENRICH_DATABASE instead if the URL contains a password.
    #[arg(long, value_name = "URL", global = true)]
    pub database: Option<String>,
}
