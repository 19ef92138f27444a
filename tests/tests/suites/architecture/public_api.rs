//! The public enums of the crates that a gateway uses.

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
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in CRATES.iter().flat_map(|path| rust_files(&root().join(path).join("src"))) {
        let source = read_to_string(&file).unwrap();
        for item in source.split("\n\n") {
            let Some(name) = item.lines().find_map(|line| line.trim().strip_prefix("pub enum ")) else {
                continue;
            };
            count += 1;
            if !item.contains("#[non_exhaustive]") && !item.contains("Exhaustive:") {
                wrong.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(count >= 40, "only {count} public enums");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
