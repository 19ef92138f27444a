//! Writes a man page of each command to a directory, for packages.

#![forbid(unsafe_code)]

use std::io;

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: man DIRECTORY"))?;
    std::fs::create_dir_all(&directory)?;
    clap_mangen::generate_to(enrich::command(), directory)
}
