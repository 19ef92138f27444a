//! What the commands take. `serve` has what `enrich serve` takes.

mod serve;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use enrich_lib::model::WorkspaceId;

use crate::help::{BULK_HELP, EXIT_CODES, IMPORT_HELP};
use crate::url::ServerUrl;

pub use self::serve::{DurabilitySetting, LogFormat, ServeArgs};

/// Person enrichment: one personal email in, the person's LinkedIn profile out.
#[derive(Debug, Parser)]
#[command(name = "enrich", version, propagate_version = true, after_long_help = EXIT_CODES)]
pub struct Args {
    /// The data directory [default: ./enrich-data]
    #[arg(long, value_name = "DIR", env = "ENRICH_DATA", global = true)]
    pub data: Option<PathBuf>,
    /// The PostgreSQL server with workspaces, keys and credits, instead of the data directory; its password is better in
    /// the variable, as other users of this machine can see arguments
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true, global = true)]
    pub database: Option<ServerUrl>,
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    pub const DATA: &str = "./enrich-data";
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer lookups over HTTP
    Serve(ServeArgs),
    /// Create and list workspaces
    Workspace {
        #[command(subcommand)]
        command: WorkspaceCommand,
    },
    /// Create, list and revoke API keys
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Grant, show and audit credits
    Credits {
        #[command(subcommand)]
        command: CreditsCommand,
    },
    /// Prepare the PostgreSQL server of --database, or bring it to this version
    Migrate {
        #[command(flatten)]
        format: Format,
    },
    /// Move the accounts of a data directory to a PostgreSQL server; stopped at any moment, the same command goes on
    Copy(CopyArgs),
    /// Fill the people directory, and honour opt-outs
    People {
        #[command(subcommand)]
        command: PeopleCommand,
    },
    /// Try a vendor of the settings
    Vendors {
        #[command(subcommand)]
        command: VendorsCommand,
    },
    /// Check the settings of `serve`, and show what there are
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Ask a running server for one person
    Lookup(LookupArgs),
    /// Ask a running server for a file of people
    #[command(after_long_help = BULK_HELP)]
    Bulk(BulkArgs),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong in a file of settings, or else what it would serve; keys are read, and never shown
    Check {
        file: PathBuf,
        #[command(flatten)]
        format: Format,
    },
    /// Print a file with all settings and their defaults
    Example,
}

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    Create {
        /// 1 to 64 letters, digits, dots, dashes or underscores
        name: WorkspaceId,
        /// Credits to start with
        #[arg(long, value_name = "N", default_value_t = 0)]
        credits: u64,
        /// The most requests in a window
        #[arg(long, value_name = "N", default_value_t = 500)]
        limit: u32,
        /// The length of a window
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        window: u32,
        #[command(flatten)]
        format: Format,
    },
    /// List the workspaces
    List {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create an API key and print it: it is shown only this once
    Create {
        workspace: WorkspaceId,
        /// What the key is for, such as the integration's name: up to 100 characters
        #[arg(value_parser = label)]
        label: String,
        #[command(flatten)]
        format: Format,
    },
    /// List the keys of a workspace, never the keys themselves
    List {
        workspace: WorkspaceId,
        #[command(flatten)]
        format: Format,
    },
    /// Revoke a key for good
    Revoke {
        /// Its id, as `key list` shows it
        id: String,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Subcommand)]
pub enum CreditsCommand {
    /// Give a workspace more credits
    Grant {
        workspace: WorkspaceId,
        #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        credits: u64,
        #[command(flatten)]
        format: Format,
    },
    /// Show the credits of a workspace
    Show {
        workspace: WorkspaceId,
        #[command(flatten)]
        format: Format,
    },
    /// Add up all grants and spends: whether they are what the balances say. A server may run meanwhile
    Audit {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Subcommand)]
pub enum PeopleCommand {
    /// Import people from CSV or JSON Lines, gzipped or not; a server may run meanwhile
    #[command(after_long_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Opt a person out: from now on they are not found, whatever is imported
    Suppress {
        email: String,
        #[command(flatten)]
        format: Format,
    },
    /// Count the people directory
    Stats {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Subcommand)]
pub enum VendorsCommand {
    /// Send one request to a vendor and show the exchange
    ///
    /// The request is shown with SECRET in place of the vendor's key. It is outside of any lookup: no workspace is billed,
    /// no breaker, cache or retry takes part. The vendor may bill it. A person who opted out is not sent.
    Try(TryArgs),
}

#[derive(Debug, clap::Args)]
pub struct TryArgs {
    /// The vendor's name, as the settings or its description give it
    pub name: String,
    /// The email to send
    pub email: String,
    /// Settings in TOML that have the vendor
    #[arg(long, value_name = "FILE", env = "ENRICH_CONFIG")]
    pub config: PathBuf,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// CSV or JSON Lines, gzipped or not: its first line shows which. `-` is stdin
    pub file: PathBuf,
    /// The column with the email
    #[arg(long, value_name = "NAME", default_value = "email")]
    pub email_column: String,
    /// The column with the LinkedIn profile's URL
    #[arg(long, value_name = "NAME", default_value = "linkedin_url")]
    pub url_column: String,
    /// The column with the confidence of the match, from 0 to 1; without it, 1
    #[arg(long, value_name = "NAME", default_value = "confidence")]
    pub confidence_column: String,
    /// Where to list rejected rows, with line and reason [default: FILE.rejects.csv, for stdin stdin.rejects.csv]
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Exit with 0 even if rows are rejected
    #[arg(long)]
    pub allow_rejects: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// The data directory: it may not be served meanwhile, and is not afterwards
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// The PostgreSQL server, prepared by `enrich migrate`
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true)]
    pub to: ServerUrl,
}

#[derive(Debug, clap::Args)]
pub struct LookupArgs {
    pub email: String,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print errors as JSON, as the answer is anyway
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct ServerArgs {
    /// API key; other users can see it in the process list
    ///
    /// Prefer --key-file or the variable ENRICH_KEY. A flag wins over the variable.
    #[arg(long)]
    pub key: Option<String>,
    /// Read the API key from a file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub key_file: Option<PathBuf>,
    /// The server
    #[arg(long, env = "ENRICH_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Send key and emails over http:// to another machine
    #[arg(long)]
    pub plaintext: bool,
}

impl std::fmt::Debug for ServerArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerArgs").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, clap::Args)]
pub struct BulkArgs {
    /// CSV or JSON Lines, gzipped or not: its first line shows which. `-` is stdin
    pub file: PathBuf,
    /// Where the rows and their answers go, readable by you alone; the same command goes on where one stopped.
    /// Without it, they go to stdout
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// The column with the email
    #[arg(long, value_name = "NAME", default_value = "email")]
    pub column: String,
    /// What the names of the added columns begin with
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// The most lookups at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrency: u16,
    /// Look up all rows of OUT with an error again, and not only those whose error was temporary
    #[arg(long, requires = "output")]
    pub retry_errors: bool,
    /// Start OUT anew: the answers in it are lost, and are paid for again
    #[arg(long, requires = "output")]
    pub force: bool,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Format {
    /// Print JSON, also for errors (on standard error)
    #[arg(long)]
    pub json: bool,
}

const LABEL_CHARS_MAX: usize = 100;

/// A label that stays on its line.
fn label(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(format!("a label has 1 to {LABEL_CHARS_MAX} characters, on one line"));
    }
    Ok(text.to_owned())
}
