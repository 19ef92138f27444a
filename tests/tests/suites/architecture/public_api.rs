use std::fs::read_to_string;

use super::{root, rust_files};

/// The crates that a gateway uses.
const CRATES: [&str; 10] = [
    "enrich-lib",
    "enrich-lib/adapters/contract",
    "enrich-lib/adapters/metrics",
    "enrich-lib/adapters/postgres",
    "enrich-lib/adapters/redis",
    "enrich-lib/adapters/sqlite",
    "enrich-lib/adapters/tower",
    "enrich-lib/adapters/vendors",
    "sim",
    "tests/golden",
];

/// A new variant breaks every `match` of a gateway. Where it must, the documentation says so.
#[test]
fn public_enums_are_non_exhaustive_or_say_why_not() {
    let mut wrong = Vec::new();
    for file in CRATES.iter().flat_map(|path| rust_files(&root().join(path).join("src"))) {
        let source = read_to_string(&file).unwrap();
        for item in source.split("\n\n").filter(|item| item.contains("\npub enum ")) {
            if !item.contains("#[non_exhaustive]") && !item.contains("Exhaustive:") {
                let name = item.split("\npub enum ").nth(1).unwrap().lines().next().unwrap();
                wrong.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
