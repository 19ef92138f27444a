//! Arguments of `enrich completions`.

use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    pub shell: Shell,
}
