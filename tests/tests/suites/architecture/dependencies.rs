//! The dependencies of each crate.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::process::Command;

use super::root;

/// Crates with some of their transitive dependencies, and those that they must not have.
const TREES: [(&str, &str, &str); 5] = [
    // No runtime, socket or randomness.
    (
        "enrich-lib",
        "serde_json sha2",
        "tokio async-std smol async-io mio socket2 hyper hyper-util rustls rusqlite redis tokio-postgres deadpool rand \
         getrandom futures-executor tracing chrono jiff time",
    ),
    // The TLS stack of the others.
    ("enrich-redis", "redis rustls ring", "openssl-sys native-tls aws-lc-rs aws-lc-sys hyper enrich-host"),
    // No store, vendor, file format or command line.
    ("enrich-host", "enrich-tower", "enrich-store rusqlite redis tokio-postgres clap csv toml"),
    ("enrich-node", "enrich-host enrich-sqlite", "clap csv enrich enrich-console"),
    ("enrich-sim", "enrich-host", "clap"),
];

/// Returns all transitive dependencies of a crate, without those of proc macros and build scripts.
fn tree(package: &str) -> BTreeSet<String> {
    let args = ["tree", "-p", package, "-e", "normal,no-proc-macro", "--prefix", "none", "--locked"];
    let tree =
        Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).unwrap();
    lines.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

#[test]
fn crates_have_no_banned_dependency() {
    for (package, some, banned) in TREES {
        let tree = tree(package);
        assert!(some.split(' ').all(|name| tree.contains(name)), "{package}: {tree:?}");
        let found: Vec<_> = banned.split(' ').filter(|name| tree.contains(*name)).collect();
        assert!(found.is_empty(), "{package} depends on {found:?}");
    }
}

/// Cargo unifies features across an embedder's workspace. Without features, every build has the same library.
#[test]
fn library_has_no_features() {
    let manifest = read_to_string(root().join("enrich-lib/Cargo.toml")).unwrap();
    for word in ["[features]", "optional", "default-features"] {
        assert!(!manifest.contains(word), "{word}");
    }
}

#[test]
fn adapters_depend_on_the_library_store_and_net_only() {
    for entry in std::fs::read_dir(root().join("enrich-lib/adapters")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = read_to_string(path.join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let names = dependencies.lines().filter(|line| line.starts_with("enrich-"));
        for name in names.map(|line| line.split(['.', ' ']).next().unwrap()) {
            let is_allowed = match name {
                "enrich-lib" => true,
                "enrich-store" | "enrich-net" => !path.ends_with("store") && !path.ends_with("net"),
                _ => false,
            };
            assert!(is_allowed, "{} depends on {name}", path.display());
        }
        for (driver, adapter) in [("rusqlite.", "sqlite"), ("tokio-postgres.", "postgres")] {
            let names_it = dependencies.lines().any(|line| line.starts_with(driver));
            assert_eq!(names_it, path.ends_with(adapter), "{} and {driver}", path.display());
        }
    }
}
