//! Commands for API keys, users of the web application, and usage.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use enrich_lib::key::{ApiKey, KeyId, KeyIdError};
use enrich_lib::model::WorkspaceId;
use enrich_store::records;
use enrich_store::usage::Day;
use enrich_store::users::Role;

use crate::failure::Failure;
use crate::public_url::PublicUrl;
use crate::{date, duration, number};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create an API key and print it once
    Create {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Label, such as the integration's name
        ///
        /// 1 to 100 visible characters, on one line.
        #[arg(value_parser = label)]
        label: String,
        /// Time until the key expires [default: never]
        ///
        /// A number of minutes, hours or days: 30m, 24h or 90d.
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        expires: Option<Duration>,
        /// Create a test key, whose lookups are free
        ///
        /// The address determines the reply: see the page "HTTP interface" of the manual.
        #[arg(long)]
        test: bool,
        #[command(flatten)]
        output: KeyOutputArg,
    },
    /// List the keys of a workspace, masked
    List {
        /// Name of the workspace
        workspace: WorkspaceId,
    },
    /// Replace a key and print the new one once
    ///
    /// The new key has the label and the expiry of the old one. Both work until the grace period ends.
    Rotate {
        /// Id of the old key, as printed by `key list`
        #[arg(value_parser = key_id)]
        id: KeyId,
        /// Time until the old key expires, or 0
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::parse_or_zero)]
        grace: Duration,
        #[command(flatten)]
        output: KeyOutputArg,
    },
    /// Disable or enable a key
    Set {
        /// Id of the key, as printed by `key list`
        #[arg(value_parser = key_id)]
        id: KeyId,
        #[command(flatten)]
        change: KeyChange,
    },
    /// Revoke a key permanently
    Revoke {
        /// Id of the key, as printed by `key list`
        #[arg(value_parser = key_id)]
        id: KeyId,
    },
}

#[derive(Debug, clap::Args)]
pub struct KeyOutputArg {
    /// New file for the key, or `-` for stdout [default: -]
    ///
    /// Only its owner can read the file, which contains the key alone. An existing file is not replaced.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct KeyChange {
    /// Refuse requests with the key until it is enabled again
    #[arg(long)]
    pub disable: bool,
    /// Accept requests with the key again
    #[arg(long)]
    pub enable: bool,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Print a one-time link that creates a user of a workspace
    ///
    /// Send the link to the user. It is valid for 24 hours, and replaces an unused link for the same user and
    /// workspace.
    Invite {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Email of the user
        email: String,
        /// Role of the user in the workspace
        ///
        /// Members create keys and manage their own. Admins also manage members and all keys.
        #[arg(long, default_value = "member", value_parser = role())]
        role: Role,
        #[command(flatten)]
        url: ConsoleUrlArg,
    },
    /// List users and open invitations
    List {
        /// List only those of this workspace
        #[arg(long, value_name = "NAME")]
        workspace: Option<WorkspaceId>,
    },
    /// Print a one-time link that sets a new password
    ///
    /// The old password and all sessions of the user end at once: until the user opens the link and sets a
    /// password, which also removes the second factor, the user cannot sign in. The link is valid for 24 hours.
    Reset {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Email of the user
        email: String,
        #[command(flatten)]
        url: ConsoleUrlArg,
    },
    /// Delete a user, or withdraw an invitation
    ///
    /// Ends all sessions of the user. Keys that the user created are unchanged.
    Remove {
        /// Name of the workspace
        workspace: WorkspaceId,
        /// Email of the user
        email: String,
    },
}

#[derive(Debug, clap::Args)]
pub struct ConsoleUrlArg {
    /// URL of the web application [default: that of the settings]
    #[arg(long)]
    pub url: Option<PublicUrl>,
}

#[derive(Debug, clap::Args)]
pub struct UsageArgs {
    /// Name of the workspace
    pub workspace: WorkspaceId,
    #[command(flatten)]
    pub period: PeriodArgs,
    /// Add up all keys, or all days
    #[arg(long)]
    pub by: Option<Grouping>,
    #[command(flatten)]
    pub rows: RowArgs,
}

/// The groups of rows that a list adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Grouping {
    /// One row per day and outcome
    Day,
    /// One row per key and outcome
    Key,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PeriodArgs {
    /// First day (UTC), such as 2026-11-01
    #[arg(long, value_name = "DAY", value_parser = date::parse)]
    pub from: Option<Day>,
    /// Last day (UTC) [default: today]
    #[arg(long, value_name = "DAY", value_parser = date::parse)]
    pub to: Option<Day>,
    /// Number of days up to the last one, without --from
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = number::within(1..=3660_u32), conflicts_with = "from")]
    pub days: u32,
}

impl PeriodArgs {
    /// Returns the first and the last day.
    pub fn range(self) -> Result<(Day, Day), Failure> {
        let last = self.to.unwrap_or_else(date::today);
        let first = self.from.unwrap_or_else(|| last.minus(self.days - 1));
        if first > last {
            let (first, last) = (date::format(first), date::format(last));
            return Err(Failure::usage(format!("--from {first} is after --to {last}; exchange them")));
        }
        Ok((first, last))
    }
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RowArgs {
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// Parses the id of a key. The error for a key has its id: a key that others know must be revoked soon.
fn key_id(text: &str) -> Result<KeyId, String> {
    text.parse().map_err(|error: KeyIdError| match ApiKey::parse(text) {
        Some(key) => format!("this is a key, whose id is {}", key.digest().key_id()),
        None => error.to_string(),
    })
}

/// Parses a text of 1 to 100 visible characters on one line.
pub fn label(text: &str) -> Result<String, String> {
    let label = records::label(text).map(str::to_owned);
    label
        .ok_or_else(|| format!("must have 1 to {} visible characters, on one line", records::LABEL_CHARS_MAX))
}

/// Parses a display name, or an empty text.
pub fn label_or_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { label(text) }
}

fn role() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new([Role::Member.as_str(), Role::Admin.as_str()])
        .try_map(|role| role.parse::<Role>())
}
