//! Flags of `enrich serve`.

use super::store::StoreArgs;

#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Create sample data and a key if there is no data yet
    ///
    /// Creates 300 invented people and a workspace `demo` with 1,000 credits. Also starts the web application
    /// on 127.0.0.1:8081, unless the setting `console.listen` is set.
    #[arg(long)]
    pub sample: bool,
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Flags that override settings.
#[derive(Clone, Debug, clap::Args)]
pub struct SettingArgs {
    /// Address to listen on
    ///
    /// An address and a port. A port alone means 127.0.0.1. `fd://3` or `fd://NAME` is a listening socket
    /// that systemd or another parent process passes in LISTEN_FDS.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Log format: `text` or `json`
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Rate-limit store: `memory` or `redis://HOST`
    #[arg(long, value_name = "URL", help_heading = "Data")]
    pub windows: Option<String>,
    #[command(flatten)]
    pub store: StoreArgs,
}
