//! The packages that the profile `release` does not optimise. `dist` inherits from it, and must optimise each of them.

use std::collections::BTreeSet;
use std::fs;

use super::root;

#[test]
fn dist_optimises_what_release_does_not() {
    let cold = packages("release", "opt-level = 0");
    assert!(cold.contains("redis"), "{cold:?}");
    assert_eq!(packages("dist", "opt-level = 3"), cold);
}

/// Returns the packages with this setting in a profile of the workspace.
fn packages(profile: &str, setting: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let heading = format!("[profile.{profile}.package]");
    let lines = manifest.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.strip_suffix(setting)?.strip_suffix('.')?.to_owned())).collect()
}
