//! Commands for settings, workspaces, credits, people and vendors.

use std::num::NonZeroI64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use enrich_lib::model::{LookupId, WorkspaceId};

use super::help;
use super::serve::ServeArgs;
use super::store::{ConfigArgs, Format, StoreArgs};
use crate::url::ServerUrl;
use crate::{duration, number};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every mistake in the settings of `serve`
    ///
    /// Takes the flags and variables of `serve`, and reads all files that the settings name. Prints what would be served if there is
    /// no mistake. Never prints keys.
    Check {
        /// Settings file (TOML) [default: that of --config]
        file: Option<PathBuf>,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        serve: Box<ServeArgs>,
    },
    /// Print a settings file with all settings and defaults
    Example,
}

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    Create {
        /// Name: 1 to 64 letters, digits, dots, dashes, underscores
        name: WorkspaceId,
        /// Initial credits
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::within(0..=i64::MAX as u64))]
        credits: u64,
        /// Burst limit: maximum requests per window
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = number::within(0..=u32::MAX))]
        limit: u32,
        /// Length of a rate-limit window, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = number::within(0..=u32::MAX))]
        window: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Change the burst limit or the low-balance warning
    ///
    /// Applies to all nodes within a second.
    Set {
        /// Name of the workspace
        name: WorkspaceId,
        #[command(flatten)]
        settings: WorkspaceSettings,
        #[command(flatten)]
        format: Format,
    },
    /// Set the display name of a workspace, or remove it
    ///
    /// The name itself is permanent. The web application and `workspace list` show the display name beside it.
    Rename {
        /// Name of the workspace
        name: WorkspaceId,
        /// Display name, on one line; an empty one removes it
        ///
        /// At most 100 characters.
        #[arg(value_parser = super::accounts::label_or_empty)]
        display_name: String,
        #[command(flatten)]
        format: Format,
    },
    /// Refuse all keys of a workspace until it is resumed
    ///
    /// Requests are answered with 401, as with a disabled key. Lookups in progress are completed and billed.
    Suspend(WorkspaceArgs),
    /// Resume a suspended workspace
    Resume(WorkspaceArgs),
    /// Delete a workspace permanently
    ///
    /// Its keys end. Its credits, spends, usage and audit log are kept, and its name cannot be used again.
    Delete {
        #[command(flatten)]
        workspace: WorkspaceArgs,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
    /// List workspaces
    List {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub struct WorkspaceArgs {
    /// Name of the workspace
    pub name: WorkspaceId,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct WorkspaceSettings {
    /// Burst limit: maximum requests per window
    #[arg(long, value_name = "N", value_parser = number::within(0..=u32::MAX))]
    pub limit: Option<u32>,
    /// Length of a rate-limit window, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::within(0..=u32::MAX))]
    pub window: Option<u32>,
    /// Warn in the log below this number of credits; 0: never
    #[arg(long, value_name = "N", value_parser = number::within(0..=i64::MAX as u64))]
    pub low_balance: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum CreditsCommand {
    /// Grant credits to a workspace
    Grant {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Number of credits
        #[arg(value_name = "N", value_parser = number::granted_credits)]
        credits: u64,
        #[command(flatten)]
        format: Format,
    },
    /// Correct the granted credits of a workspace
    ///
    /// A negative number withdraws available credits, also those that servers have in memory. It never withdraws held credits.
    Adjust {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Number of credits, such as 500 or -500
        #[arg(value_name = "N", value_parser = number::adjustment)]
        credits: NonZeroI64,
        /// Reason, for the history of the credits
        #[arg(long, value_name = "TEXT", value_parser = super::accounts::label)]
        reason: String,
        #[command(flatten)]
        format: Format,
    },
    /// Refund the credits of a lookup, once
    Refund {
        /// Id of the lookup, as in its reply
        lookup_id: LookupId,
        /// Reason, for the history of the credits
        #[arg(long, value_name = "TEXT", value_parser = super::accounts::label)]
        reason: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// List the grants, adjustments and refunds of a workspace
    History {
        /// Name of the workspace
        workspace: WorkspaceId,
        #[command(flatten)]
        format: Format,
    },
    /// Show the balance of a workspace
    Show {
        /// Name of the workspace
        workspace: WorkspaceId,
        #[command(flatten)]
        format: Format,
    },
    /// Remove old spends; balances and usage stay exact
    ///
    /// Removed spends are not listed and cannot be refunded. Also adds up the usage of several nodes by day. Can run while a server is
    /// running, and again after an interruption.
    Prune {
        /// Age of the spends to remove, at least 1d
        ///
        /// A number of hours or days, such as 400d. Spends of the last day (UTC) are always kept.
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        older_than: Duration,
        #[command(flatten)]
        format: Format,
    },
    /// Verify balances against grants and spends
    ///
    /// Can run while a server is running.
    Audit {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub struct MigrateArgs {
    /// PostgreSQL server to migrate
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true)]
    pub database: Option<ServerUrl>,
    #[command(flatten)]
    pub file: ConfigArgs,
    /// Only report the version of the tables
    ///
    /// Changes nothing. Fails if this program cannot serve the tables, for example because a migration is needed.
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// Data directory to copy
    ///
    /// It must not be served during the copy, and cannot be served afterwards.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// PostgreSQL server, prepared by `enrich migrate`
    #[arg(long, value_name = "URL", env = "ENRICH_DATABASE", hide_env_values = true)]
    pub to: Option<ServerUrl>,
    #[command(flatten)]
    pub file: ConfigArgs,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Subcommand)]
pub enum PeopleCommand {
    /// Import people from CSV or JSON Lines
    ///
    /// Can run while a server is running.
    #[command(after_long_help = help::IMPORT)]
    Import(ImportArgs),
    /// Write the people to a snapshot for other nodes
    ///
    /// Replaces the file when the snapshot is complete. It contains no email, no key and no opt-outs. Can run while a server is
    /// running.
    Publish(SnapshotArgs),
    /// Replace the people by those of a snapshot
    ///
    /// Writes only the differences, in one commit, and skips people who opted out. Refuses a snapshot with another people.key, and
    /// one that is older than the last. Can run while a server is running.
    Fetch(FetchArgs),
    /// Opt people out permanently
    ///
    /// They are no longer found, and later imports do not change that. With --database, this applies to all nodes.
    Suppress(OptOutArgs),
    /// Withdraw opt-outs
    ///
    /// The next import adds the people again. With --database, this applies to all nodes.
    Unsuppress(OptOutArgs),
    /// Show whether a person opted out
    ///
    /// Exits with 0 in both cases.
    Suppressed {
        /// Email of the person
        email: String,
        #[command(flatten)]
        format: Format,
    },
    /// Count people and opt-outs
    Stats {
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub struct SnapshotArgs {
    /// File with the snapshot
    pub file: PathBuf,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct FetchArgs {
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
    /// Key file to copy if the data directory has none
    ///
    /// All nodes need the same people.key. It is ignored if the data directory has a key.
    #[arg(long, value_name = "FILE")]
    pub people_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct OptOutArgs {
    /// Emails of the people
    #[arg(value_name = "EMAIL", required = true)]
    pub emails: Vec<String>,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// CSV or JSON Lines file, optionally gzipped; `-` for stdin
    pub file: PathBuf,
    /// Column with the email
    #[arg(long, value_name = "NAME", default_value = "email", help_heading = "Columns")]
    pub email_column: String,
    /// Column with the LinkedIn profile URL
    #[arg(long, value_name = "NAME", default_value = "linkedin_url", help_heading = "Columns")]
    pub url_column: String,
    /// Column with the match confidence, from 0 to 1
    ///
    /// A missing value means 1.
    #[arg(long, value_name = "NAME", default_value = "confidence", help_heading = "Columns")]
    pub confidence_column: String,
    /// List of rejected rows [default: FILE.rejects.csv]
    ///
    /// Contains line numbers and reasons, no row content. The default for stdin is stdin.rejects.csv.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Exit with 0 even if rows are rejected
    #[arg(long)]
    pub allow_rejects: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Subcommand)]
pub enum VendorsCommand {
    /// Send one request to a vendor and print the exchange
    ///
    /// Prints the request with SECRET in place of the vendor's key. The request is not a lookup: no workspace is billed, and no
    /// breaker, cache or retry takes part. The vendor may bill it. Fails without a request if the person opted out.
    Try(TryArgs),
}

#[derive(Debug, clap::Args)]
pub struct TryArgs {
    /// Name of the vendor
    ///
    /// The name in the settings or in the vendor's description.
    pub name: String,
    /// Email to send
    pub email: String,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub store: StoreArgs,
}
