//! The flags that override settings.

use crate::args::{DataArgs, SettingArgs, StoreArgs};
use crate::failure::Failure;
use crate::settings::{Layers, SharedSettings};

pub fn of_serve(layers: Layers, args: &SettingArgs) -> Layers {
    let layers = layers.flag("--listen", "listen", args.listen.as_deref());
    let layers = layers.flag("--log-format", "log_format", args.log_format.as_deref());
    of_store(layers.flag("--windows", "windows", args.windows.as_deref()), &args.store)
}

pub fn of_store(layers: Layers, args: &StoreArgs) -> Layers {
    of_data(layers, &args.data).flag("--database", "database", args.database.as_deref())
}

pub fn of_data(layers: Layers, args: &DataArgs) -> Layers {
    layers.flag("--data", "data", args.data.as_deref())
}

/// Returns the settings of a command that copies the data directory. With a database, the directory is not used,
/// and may have data from before a move.
pub fn directory(layers: Layers, args: &DataArgs) -> Result<SharedSettings, Failure> {
    let settings = SharedSettings::read(&of_data(layers, args))?;
    match settings.database()? {
        None => Ok(settings),
        Some(url) => Err(Failure::usage(format!("the accounts and people are in {url}"))
            .advise("use the tools of PostgreSQL, or name a data directory with --data")),
    }
}
