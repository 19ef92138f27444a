//! The command line: commands, flags and help texts.
//!
//! Doc comments of arguments are the help texts. The first paragraph is the short help of `-h`.

mod accounts;
mod admin;
mod backup;
mod client;
mod help;
mod serve;
mod store;

use std::any::TypeId;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand};

pub use self::accounts::{
    ConsoleUrlArg, Grouping, KeyChange, KeyCommand, KeyOutputArg, UsageArgs, UserCommand,
};
pub use self::admin::{
    ConfigCommand, CopyArgs, CreditsCommand, GrantArgs, ImportArgs, LedgerArgs, MigrateArgs, OptOutArgs,
    PeopleCommand, TryArgs, VendorsCommand, WorkspaceCommand, WorkspaceSettings,
};
pub use self::backup::{BackupArgs, RestoreArgs};
pub use self::client::{
    AccessArgs, BulkArgs, CompletionsArgs, ConformArgs, HealthArgs, LookupArgs, OpenapiArgs, ServerArgs,
};
pub use self::serve::{ServeArgs, SettingArgs};
pub use self::store::{DataArgs, StoreArgs};
use crate::path;

/// Person enrichment: returns the LinkedIn profile of a personal email address.
#[derive(Debug, Parser)]
#[command(name = "enrich", version, propagate_version = true, max_term_width = 100, after_long_help = help::EXIT_CODES)]
pub struct Args {
    /// Print one JSON value, also for errors (on standard error)
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Settings file (TOML) [default: /etc/enrich/enrich.toml]
    ///
    /// Every command reads the same settings, from this file, variables and flags. `enrich config example`
    /// prints all of them.
    #[arg(long, value_name = "FILE", env = "ENRICH_CONFIG", hide_env_values = true, global = true)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve lookups over HTTP
    Serve(ServeArgs),
    /// Check whether a running server is ready
    ///
    /// Asks its admin listener, and prints the checks that failed. Exits with 0 or 1, for health checks of
    /// containers.
    Health(HealthArgs),
    /// Check settings and print an example
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Test the vendors in the settings
    Vendors {
        #[command(subcommand)]
        command: VendorsCommand,
    },
    /// Create, list, change and delete workspaces
    Workspace {
        #[command(flatten)]
        store: StoreArgs,
        #[command(subcommand)]
        command: WorkspaceCommand,
    },
    /// Create, list, change, rotate and revoke API keys
    Key {
        #[command(flatten)]
        store: StoreArgs,
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Invite, list and remove users of the web application
    User {
        #[command(flatten)]
        store: StoreArgs,
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Grant and refund credits, and list their movements
    Credits {
        #[command(flatten)]
        store: StoreArgs,
        #[command(subcommand)]
        command: CreditsCommand,
    },
    /// Import people, and record opt-outs
    People {
        #[command(flatten)]
        store: StoreArgs,
        #[command(subcommand)]
        command: PeopleCommand,
    },
    /// Show the lookups of a workspace by day, key and outcome
    Usage {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        args: UsageArgs,
    },
    /// Back up the data directory, also while it is served
    ///
    /// Copies the accounts, the people and their key, verifies the copies and makes them durable. Accounts on
    /// a PostgreSQL server are not included.
    Backup(BackupArgs),
    /// Restore a backup to a new data directory
    ///
    /// The data directory must be missing or empty. The backup is verified and not changed.
    Restore(RestoreArgs),
    /// Verify the database files and the balances
    ///
    /// Reads all data, and can run while a server is running. Compares balances with their grants and spends,
    /// also on a PostgreSQL server. Fails if there is an error.
    Check {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Create or upgrade the tables of a PostgreSQL server
    Migrate(MigrateArgs),
    /// Copy a data directory's accounts and opt-outs to PostgreSQL
    ///
    /// If it is interrupted, run the same command again.
    Copy(CopyArgs),
    /// Look up one email on a running server
    Lookup(LookupArgs),
    /// Look up the emails of a file on a running server
    #[command(after_long_help = help::BULK)]
    Bulk(BulkArgs),
    /// Compare the replies of a deployment with the interface
    #[command(after_long_help = help::CONFORM)]
    Conform(ConformArgs),
    /// Print the OpenAPI description of the API
    Openapi(OpenapiArgs),
    /// Print a script that completes commands in a shell
    Completions(CompletionsArgs),
}

/// The commands by topic, as `enrich --help` lists them.
const TOPICS: [(&str, &[&str]); 7] = [
    ("Server", &["serve", "health", "config", "vendors"]),
    ("Upgrades", &["migrate", "copy"]),
    ("Data", &["backup", "restore", "check"]),
    ("Access", &["workspace", "key"]),
    ("Billing", &["credits", "usage"]),
    ("Users and people", &["user", "people"]),
    ("Clients", &["lookup", "bulk", "conform", "openapi", "completions"]),
];

/// The paths that may be `-`, for standard input or standard output.
const WITH_DASH: [&str; 3] = ["file", "key_file", "output"];

impl Args {
    /// Returns the parser, with the commands grouped by topic in the help.
    pub fn grouped() -> clap::Command {
        let command = with_checked_values(Self::command());
        let style = *command.get_styles().get_header();
        let mut topics = String::new();
        for (topic, names) in TOPICS {
            topics += &format!("{style}{topic}:{style:#}\n");
            for name in names {
                let about = command.find_subcommand(name).and_then(clap::Command::get_about);
                topics += &format!("  {name:<13}{}\n", about.cloned().unwrap_or_default());
            }
            topics.push('\n');
        }
        command.help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{topics}{style}Options:{style:#}\n{{options}}{{after-help}}"
        ))
    }
}

/// Accepts a negative number as a value, so that the value's own parser reports it, and checks each path.
fn with_checked_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let is_value = arg.get_action().takes_values();
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let arg = if is_value { arg.allow_negative_numbers(true) } else { arg };
        let parse =
            if WITH_DASH.contains(&arg.get_id().as_str()) { path::parse_or_dash } else { path::parse };
        if is_path { arg.value_parser(OsStringValueParser::new().try_map(parse)) } else { arg }
    });
    command.mut_subcommands(with_checked_values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_topic() {
        let listed: Vec<_> = TOPICS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let commands = Args::command();
        let commands: Vec<_> = commands.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(listed.len(), commands.len());
        assert!(commands.iter().all(|name| listed.contains(name)), "{commands:?}");
    }

    #[test]
    fn short_help_is_at_most_60_characters() {
        fn check(command: &clap::Command) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.chars().count() <= 60 || command.get_name() == "enrich", "{about}");
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    !help.is_empty() && help.chars().count() <= 60,
                    "{} {}: {help}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
