//! The dependencies of each crate.

use std::collections::BTreeSet;
use std::process::Command;

use super::root;

/// Returns all transitive dependencies of a crate, without those of proc macros and build scripts.
fn tree(package: &str) -> BTreeSet<String> {
    branches(package, "normal,no-proc-macro").into_iter().map(|(_, name)| name).collect()
}

/// Returns all transitive dependencies of `dependency`, a dev-dependency of `package`.
fn tree_of_tests(package: &str, dependency: &str) -> BTreeSet<String> {
    let branches = branches(package, "normal,dev,no-proc-macro");
    let from = branches.iter().position(|(depth, name)| *depth == 1 && name == dependency).unwrap();
    let below = branches.into_iter().skip(from + 1).take_while(|(depth, _)| *depth > 1);
    below.map(|(_, name)| name).collect()
}

/// Returns the lines of `cargo tree`: depth and crate name.
fn branches(package: &str, edges: &str) -> Vec<(usize, String)> {
    let args = [
        "tree",
        "-p",
        package,
        "-e",
        edges,
        "--prefix",
        "depth",
        "--format",
        " {p}",
        "--no-dedupe",
        "--locked",
    ];
    let tree =
        Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let branch = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
    };
    tree.lines().filter_map(branch).collect()
}

#[test]
fn library_depends_on_no_runtime_socket_or_randomness() {
    let tree = tree("enrich-lib");
    assert!(tree.contains("serde_json") && tree.contains("sha2"), "{tree:?}");
    for banned in [
        "tokio",
        "async-std",
        "smol",
        "async-io",
        "mio",
        "socket2",
        "hyper",
        "hyper-util",
        "rustls",
        "rusqlite",
        "redis",
        "tokio-postgres",
        "deadpool",
        "rand",
        "getrandom",
        "futures-executor",
        "tracing",
        "chrono",
        "jiff",
        "time",
    ] {
        assert!(!tree.contains(banned), "enrich-lib depends on {banned}");
    }
}

/// Cargo unifies features across an embedder's workspace. Without features, every build has the same library.
#[test]
fn library_has_no_features() {
    let manifest = root().join("enrich-lib/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("[dependencies]"));
    for word in ["[features]", "optional", "default-features"] {
        assert!(!manifest.contains(word), "{word}");
    }
}

#[test]
fn redis_uses_the_common_tls_stack() {
    let tree = tree("enrich-redis");
    assert!(tree.contains("redis") && tree.contains("rustls") && tree.contains("ring"), "{tree:?}");
    for banned in ["openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys", "hyper", "enrich-host"] {
        assert!(!tree.contains(banned), "enrich-redis depends on {banned}");
    }
}

/// Apart from the random number generator, an axum gateway already has everything that the layer needs.
#[test]
fn tower_layer_adds_few_crates_to_an_axum_gateway() {
    let (axum, library, layer) =
        (tree_of_tests("enrich-tower", "axum"), tree("enrich-lib"), tree("enrich-tower"));
    assert!(axum.contains("hyper") && layer.contains("tower-layer"), "{axum:?}, {layer:?}");
    let added: Vec<_> =
        layer.iter().filter(|name| !axum.contains(*name) && !library.contains(*name)).collect();
    assert_eq!(added, ["chacha20", "enrich-tower", "getrandom", "rand", "rand_core"]);
}

#[test]
fn only_its_adapter_depends_on_a_driver() {
    let root = root();
    for (adapter, driver) in [("sqlite", "rusqlite"), ("postgres", "tokio-postgres")] {
        let adapters = ["middleware", "provider", "postgres", "sqlite", "tower"]
            .map(|name| format!("enrich-lib/adapters/{name}"));
        for name in adapters.iter().map(String::as_str).chain(["enrich-lib", "host", "sim"]) {
            let manifest = std::fs::read_to_string(root.join(name).join("Cargo.toml")).unwrap();
            let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
            let names_it = dependencies.lines().any(|line| line.starts_with(&format!("{driver}.")));
            assert_eq!(names_it, name.ends_with(adapter), "{name} and {driver}");
        }
    }
}

#[test]
fn adapters_depend_on_the_library_store_and_net_only() {
    let adapters = root().join("enrich-lib/adapters");
    for entry in std::fs::read_dir(adapters).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
        let names = dependencies.lines().filter(|line| line.starts_with("enrich-"));
        for name in names.map(|line| line.split(['.', ' ']).next().unwrap()) {
            let is_allowed = match name {
                "enrich-lib" => true,
                "enrich-store" | "enrich-net" => !path.ends_with("store") && !path.ends_with("net"),
                _ => false,
            };
            assert!(is_allowed, "{} depends on {name}", path.display());
        }
    }
}

/// The server library knows no store, vendor, file format or command line.
#[test]
fn host_depends_only_on_the_library_and_the_tower_layer() {
    let tree = tree("enrich-host");
    let own: Vec<_> = tree.iter().filter(|name| name.starts_with("enrich-")).collect();
    assert_eq!(own, ["enrich-host", "enrich-lib", "enrich-tower"]);
    for banned in ["rusqlite", "redis", "tokio-postgres", "clap", "csv", "toml"] {
        assert!(!tree.contains(banned), "enrich-host depends on {banned}");
    }
}

/// A simulation and a gateway's tests run a node without the program.
#[test]
fn node_depends_on_no_command_line_file_format_or_web_application() {
    let tree = tree("enrich-node");
    assert!(tree.contains("enrich-host") && tree.contains("enrich-sqlite"), "{tree:?}");
    for banned in ["clap", "csv", "enrich", "enrich-console"] {
        assert!(!tree.contains(banned), "enrich-node depends on {banned}");
    }
}

#[test]
fn simulation_compiles_no_command_line_of_the_program() {
    let tree = tree("enrich-sim");
    assert!(tree.contains("enrich-host") && !tree.contains("clap"), "{tree:?}");
}
