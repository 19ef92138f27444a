//! Arguments of `enrich backup`, `restore` and `check`.

use std::path::PathBuf;

use super::store::{DataArgs, Format};

#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// Directory of the backup, which must be missing or empty
    #[arg(value_name = "DIR")]
    pub backup: PathBuf,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    pub backup: PathBuf,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub data: DataArgs,
}
