//! Commands that print files for an installation.

use std::path::PathBuf;

use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages; created if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
