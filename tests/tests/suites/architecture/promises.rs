//! Each promise of `tests/PROMISES.md` names tests that exist, one of which detects a planted bug, and each
//! decision is a promise.

use std::collections::{BTreeMap, BTreeSet};

use super::{files_with_extension, root, rust_files};

#[test]
fn promises_name_existing_tests_and_each_decision_has_one() {
    let (tests, detecting) = (functions(), detecting());
    let mut promises = BTreeSet::new();
    for (promise, names) in rows(&root().join("tests/PROMISES.md")) {
        let names: Vec<_> = names.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{promise}: no test");
        for name in &names {
            let (modules, name) = name.rsplit_once("::").unwrap_or(("", name));
            let is_there = |path: &String| modules.split("::").all(|module| path.contains(module));
            assert!(
                tests.get(name).is_some_and(|paths| paths.iter().any(is_there)),
                "{promise}: {name} is not a test"
            );
        }
        let detects = |name: &&str| detecting.contains(name.rsplit("::").next().unwrap_or_default());
        assert!(
            names.iter().any(detects),
            "{promise}: no bug in tests/planted is caught by one of its tests"
        );
        assert!(promises.insert(promise.clone()), "{promise}: twice");
    }
    let decisions = rows(&root().join("enrich-lib/DECISIONS.md"));
    let missing: Vec<_> =
        decisions.into_iter().map(|(question, _)| question).filter(|q| !promises.contains(q)).collect();
    assert!(missing.is_empty(), "without a row in tests/PROMISES.md: {missing:#?}");
}

/// Returns the tests that must detect the planted bugs.
fn detecting() -> BTreeSet<String> {
    let patches = files_with_extension(&root().join("tests/planted"), "patch").into_iter();
    let test = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let test = text.lines().find_map(|line| line.strip_prefix("caught by: "));
        let test = test.unwrap_or_else(|| panic!("{} names no test", path.display()));
        test.rsplit("::").next().unwrap_or_default().to_owned()
    };
    patches.map(test).collect()
}

/// Returns the first two cells of each row of the tables in a Markdown file.
fn rows(path: &std::path::Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ").map(str::to_owned);
        Some((cells.next()?, cells.next()?))
    });
    rows.filter(|(first, _)| !["question", "promise"].contains(&&**first)).collect()
}

/// Returns the functions in the source files of tests with the paths of their files. The rules of the
/// contract are functions that a macro turns into tests.
fn functions() -> BTreeMap<String, Vec<String>> {
    let mut functions = BTreeMap::<_, Vec<_>>::new();
    for path in rust_files(&root()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim_start).collect();
        for (n, line) in lines.iter().enumerate() {
            let Some((before, rest)) = line.split_once("fn ") else { continue };
            let is_test = lines[n.saturating_sub(3)..n]
                .iter()
                .any(|line| line.starts_with("#[") && line.contains("test"));
            let is_rule = before == "pub async " && path.to_string_lossy().contains("/contract/");
            if is_test || is_rule {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                functions.entry(name.to_owned()).or_default().push(path.display().to_string());
            }
        }
    }
    functions
}
