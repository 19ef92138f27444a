//! Embeds the transcripts, so that programs can play them without this repository.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut paths = fs::read_dir(root.join("scenarios"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "http"));
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_owned();
    let texts = paths.iter().map(|path| format!("    ({:?}, include_str!({path:?})),\n", name(path)));
    let list = format!("&[\n{}]\n", texts.collect::<String>());
    println!("cargo::rerun-if-changed=scenarios");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("scenarios.rs"), list)
}
