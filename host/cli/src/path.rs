//! Paths of files and directories, which no shell may have expanded.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Parses the value of a flag.
pub fn parse(path: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    check(&path).map(|()| path)
}

/// Rejects a path that is empty or begins with `~`, from which a directory of this name would be created.
pub fn check(path: &Path) -> Result<(), String> {
    if path.as_os_str().is_empty() {
        return Err("must not be empty".to_owned());
    }
    let Ok(rest) = path.strip_prefix("~") else { return Ok(()) };
    let home = env::var_os("HOME").map_or_else(|| PathBuf::from("/home/USER"), PathBuf::from);
    Err(format!("only a shell replaces ~; write {}", home.join(rest).display()))
}
