//! Paths of files and directories, which no shell may have expanded.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Parses the value of a flag.
pub fn parse(path: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    check(&path).map(|()| path)
}

/// Parses the value of a flag that accepts `-`.
pub fn parse_or_dash(path: OsString) -> Result<PathBuf, String> {
    if is_dash(Path::new(&path)) { Ok(path.into()) } else { parse(path) }
}

/// Returns whether the path stands for standard input or standard output.
pub fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Rejects a path that is empty, is `-` or begins with `~`, because a file of this name would be created.
pub fn check(path: &Path) -> Result<(), String> {
    if is_dash(path) {
        return Err("cannot be standard input or output; write ./- for a file with this name".to_owned());
    }
    if path.as_os_str().is_empty() {
        return Err("must not be empty".to_owned());
    }
    let Ok(rest) = path.strip_prefix("~") else { return Ok(()) };
    let home = env::var_os("HOME").map_or_else(|| PathBuf::from("/home/USER"), PathBuf::from);
    Err(format!("only a shell replaces ~; write {}", home.join(rest).display()))
}
