//! Arguments of `enrich backup` and `restore`.

use std::path::PathBuf;

use super::store::DataArgs;

#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// Directory of the backup, which must be missing or empty
    #[arg(value_name = "DIR")]
    pub backup: PathBuf,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    pub backup: PathBuf,
    #[command(flatten)]
    pub data: DataArgs,
}
