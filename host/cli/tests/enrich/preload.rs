//! Libraries that change system calls of a server.

use std::path::PathBuf;
use std::process::Command;

use super::{Enrich, repository};

/// Compiles `tests/program/NAME.c` to a library for `LD_PRELOAD`, and returns its path.
pub fn library(enrich: &Enrich, name: &str) -> PathBuf {
    let library = enrich.path(&format!("{name}.so"));
    let source = repository().join(format!("host/cli/tests/program/{name}.c"));
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).output();
    let compiled = compiled.expect("a C compiler, which SQLite needs too");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}
