//! Released migrations, which databases have executed. `migrations.sha256` has the digest of each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{files_with_extension, root};

/// In the format of `sha256sum`, relative to `enrich-lib/adapters`.
const RELEASED: &str = include_str!("migrations.sha256");

/// Returns the digest of each migration file.
fn digests(adapters: &Path) -> BTreeMap<PathBuf, String> {
    let digest = |path: &Path| hex::encode(Sha256::digest(std::fs::read(path).unwrap()));
    let files = files_with_extension(adapters, "sql").into_iter();
    files.map(|path| (path.strip_prefix(adapters).unwrap().to_owned(), digest(&path))).collect()
}

/// Returns the schema to which a file belongs, and the number of its migration: `0002_more.sql`, or a file in
/// the directory `0002`.
fn migration(path: &Path) -> (PathBuf, u32) {
    let number = |path: &Path| path.file_name()?.to_str()?.get(..4)?.parse().ok();
    let numbered = path.ancestors().find_map(|path| Some((path.parent()?.to_owned(), number(path)?)));
    numbered.unwrap_or_else(|| panic!("{} has no number of four digits", path.display()))
}

#[test]
fn released_migrations_are_unchanged() {
    let found = digests(&root().join("enrich-lib/adapters"));
    let released: BTreeMap<_, _> = RELEASED
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(digest, path)| (PathBuf::from(path), digest.to_owned()))
        .collect();
    assert!(released.len() >= 6, "{released:?}");
    let advice = "databases have executed it and do not execute it again; add a new migration instead";
    for (path, digest) in &released {
        assert_eq!(found.get(path), Some(digest), "{} is released and was changed: {advice}", path.display());
    }
    let numbers: BTreeSet<_> = released.keys().map(|path| migration(path)).collect();
    for path in found.keys().filter(|path| !released.contains_key(*path)) {
        assert!(!numbers.contains(&migration(path)), "{} adds to a release: {advice}", path.display());
    }
}
