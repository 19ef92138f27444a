//! Commands for clients of a server.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::number;

#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// URL of the admin listener [default: that of the settings]
    #[arg(long)]
    pub url: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct OpenapiArgs {
    /// Write an HTML reference with a page of each error
    ///
    /// The directory is created if it is missing. Pages in it are replaced.
    #[arg(long, value_name = "DIR")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct LookupArgs {
    /// Email to look up
    pub email: String,
    /// Pay once for all requests with this key and email
    ///
    /// A repeated request with the same key and email is free for 24 hours.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(derive_more::Debug, clap::Args)]
#[debug("ServerArgs {{ url: {url:?}, .. }}")]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// URL of the server [default: http://127.0.0.1:8080]
    ///
    /// The variable ENRICH_URL replaces the default.
    #[arg(long)]
    pub url: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// How a client uses a server.
#[derive(derive_more::Debug, clap::Args)]
#[debug("AccessArgs {{ .. }}")]
pub struct AccessArgs {
    /// API key, visible to other users of the machine
    ///
    /// Prefer --key-file or the variable ENRICH_KEY. Flags take precedence over the variable.
    #[arg(long)]
    pub key: Option<String>,
    /// File that contains the API key; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub key_file: Option<PathBuf>,
    /// Trust only the certificates in this PEM file
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Send key and emails unencrypted to another machine
    #[arg(long)]
    pub plaintext: bool,
}

#[derive(derive_more::Debug, clap::Args)]
#[debug("ConformArgs {{ url: {url:?}, .. }}")]
pub struct ConformArgs {
    /// URL of the deployment, with or without a path
    pub url: String,
    /// Another key of the same workspace
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Data")]
    pub second_key: Option<String>,
    /// Revoked key
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Data")]
    pub revoked_key: Option<String>,
    /// Key of a workspace without credits, to receive 402
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Data")]
    pub empty_key: Option<String>,
    /// Key of a workspace with a low limit, to receive 429
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Data")]
    pub limited_key: Option<String>,
    /// Another key of the workspace with a low limit
    #[arg(long, value_name = "KEY|@FILE", requires = "limited_key", help_heading = "Data")]
    pub second_limited_key: Option<String>,
    /// Email of a person who is found; each match is billed
    #[arg(long, value_name = "EMAIL", help_heading = "Data")]
    pub found: Option<String>,
    /// Email that is not found [default: nobody.here@gmail.com]
    #[arg(long, value_name = "EMAIL", help_heading = "Data")]
    pub not_found: Option<String>,
    /// Write the results as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub access: AccessArgs,
}

#[derive(Debug, clap::Args)]
pub struct BulkArgs {
    /// CSV or JSON Lines file, optionally gzipped; `-` for stdin
    pub file: PathBuf,
    /// Output file, or `-` for stdout [default: -]
    ///
    /// Readable only by its owner. The same command continues an interrupted run.
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Column with the email
    #[arg(long, value_name = "NAME", default_value = "email")]
    pub column: String,
    /// Prefix for the names of the added columns
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Maximum number of concurrent lookups
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number::within(1..=1000_u16))]
    pub concurrency: u16,
    /// Retry all rows of OUT that have an error
    ///
    /// Without it, only rows with a temporary error are looked up again.
    #[arg(long, requires = "output")]
    pub retry_errors: bool,
    /// Overwrite OUT; its results are lost and billed again
    #[arg(long, requires = "output")]
    pub force: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}
