//! Commands for settings, workspaces, credits, people and vendors.

use std::num::NonZeroI64;
use std::path::PathBuf;

use clap::Subcommand;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::RemovalLimit;

use super::accounts::{PeriodArgs, RowArgs};
use super::help;
use super::serve::SettingArgs;
use super::store::StoreArgs;
use crate::number;

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings of `serve`
    ///
    /// Takes the flags and variables of `serve`, and reads all files that the settings name. Prints what
    /// would be served if there is no mistake, and otherwise exits with 1. Never prints keys.
    Check {
        /// Settings file (TOML) [default: that of --config]
        #[arg(value_name = "FILE")]
        checked: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Print a settings file with all settings and defaults
    Example {
        /// Print the variables of all settings instead
        #[arg(long)]
        variables: bool,
    },
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
        #[arg(long, value_name = "N", default_value_t = Quota::default().limit(), value_parser = number::within(0..=u32::MAX))]
        limit: u32,
        /// Length of a rate-limit window, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = Quota::default().window_seconds(), value_parser = number::within(0..=u32::MAX))]
        window: u32,
    },
    /// Change a workspace, suspend or resume it
    ///
    /// Applies to all nodes within a second.
    Set {
        /// Name of the workspace
        name: WorkspaceId,
        #[command(flatten)]
        settings: WorkspaceSettings,
    },
    /// List workspaces with their limits and balances
    List,
    /// Delete a workspace permanently
    ///
    /// Its keys end. Its users, credits, spends, usage and audit log are kept, and its name cannot be used again.
    Delete {
        /// Name of the workspace
        name: WorkspaceId,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct WorkspaceSettings {
    /// Display name, on one line; an empty one removes it
    ///
    /// At most 100 characters. The web application and `workspace list` show it beside the name, which is
    /// permanent.
    #[arg(long, value_name = "TEXT", value_parser = super::accounts::label_or_empty)]
    pub display_name: Option<String>,
    /// Burst limit: maximum requests per window
    #[arg(long, value_name = "N", value_parser = number::within(0..=u32::MAX))]
    pub limit: Option<u32>,
    /// Length of a rate-limit window, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::within(0..=u32::MAX))]
    pub window: Option<u32>,
    /// Warn in the log below this number of credits; 0: never
    #[arg(long, value_name = "N", value_parser = number::within(0..=i64::MAX as u64))]
    pub low_balance: Option<u64>,
    /// Refuse all keys of the workspace until it is resumed
    ///
    /// Requests are answered with 401, as with a disabled key. Lookups in progress are completed and billed.
    #[arg(long, conflicts_with = "resume")]
    pub suspend: bool,
    /// Accept the keys of the workspace again
    #[arg(long)]
    pub resume: bool,
}

#[derive(Debug, Subcommand)]
pub enum CreditsCommand {
    /// Grant credits to a workspace, or withdraw some
    ///
    /// A negative number withdraws credits that are not spent. With PostgreSQL, it never withdraws held
    /// credits. With SQLite, a lookup that holds them is answered with 500 and is not billed.
    Grant(GrantArgs),
    /// Refund the credits of a lookup, once
    Refund {
        /// Id of the lookup, as in its reply
        lookup_id: LookupId,
        /// Reason, for the ledger
        #[arg(long, value_name = "TEXT", value_parser = super::accounts::label)]
        reason: Option<String>,
    },
    /// List the movements of a workspace's credits
    ///
    /// Grants, adjustments and refunds, and the spend of each billed lookup, by time.
    Ledger(LedgerArgs),
}

#[derive(Debug, clap::Args)]
pub struct GrantArgs {
    /// Name of the workspace
    pub workspace: WorkspaceId,
    /// Number of credits, such as 500 or -500
    #[arg(value_name = "N", value_parser = number::signed_credits)]
    pub credits: NonZeroI64,
    /// Reason, for the ledger; required to withdraw credits
    ///
    /// The ledger lists a grant with a reason as an adjustment.
    #[arg(long, value_name = "TEXT", value_parser = super::accounts::label)]
    pub reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct LedgerArgs {
    /// Name of the workspace
    pub workspace: WorkspaceId,
    #[command(flatten)]
    pub period: PeriodArgs,
    #[command(flatten)]
    pub rows: RowArgs,
}

#[derive(Debug, clap::Args)]
pub struct MigrateArgs {
    /// PostgreSQL server to migrate
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Only report the version of the tables
    ///
    /// Changes nothing. Fails if this program cannot serve the tables, for example because a migration is
    /// needed.
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// Data directory to copy
    ///
    /// It must not be served during the copy, and cannot be served afterwards.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// PostgreSQL server, prepared by `enrich migrate`
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum PeopleCommand {
    /// Import people from CSV or JSON Lines
    ///
    /// Can run while servers are running. With a database, all nodes find the people.
    #[command(after_long_help = help::IMPORT)]
    Import(ImportArgs),
    /// Opt people out
    ///
    /// They are no longer found, and later imports do not change that until the opt-out is withdrawn. With a
    /// database, this applies to all nodes.
    OptOut(OptOutArgs),
    /// Count people and opt-outs
    Stats,
}

#[derive(Debug, clap::Args)]
pub struct OptOutArgs {
    /// Emails of the people; `-` for the lines of stdin
    #[arg(value_name = "EMAIL", required = true)]
    pub emails: Vec<String>,
    /// Withdraw the opt-outs; the next import adds the people
    #[arg(long, conflicts_with = "show")]
    pub withdraw: bool,
    /// Show whether the people opted out, and change nothing
    #[arg(long)]
    pub show: bool,
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
    /// Remove the people who are not in the file
    ///
    /// Keeps all people if the import is interrupted before all rows are written, if a row is rejected and
    /// --allow-rejects is not given, or if more people would be removed than --remove-up-to allows.
    #[arg(long)]
    pub replace: bool,
    /// Maximum that --replace removes: a number or a percentage
    ///
    /// A file in which more people are missing is probably incomplete. The percentage is that of the people
    /// before the import.
    #[arg(long, value_name = "N|PERCENT%", default_value = "20%", requires = "replace", value_parser = number::removal_limit)]
    pub remove_up_to: RemovalLimit,
}

#[derive(Debug, Subcommand)]
pub enum VendorsCommand {
    /// Send one request to a vendor and print the exchange
    ///
    /// Prints the request with SECRET in place of the vendor's key. The request is not a lookup: no workspace
    /// is billed, and no breaker, cache or retry takes part. The vendor may bill it. Fails without a request
    /// if the person opted out.
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
    pub store: StoreArgs,
}
