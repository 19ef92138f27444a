//! The lists of modules in the documentation of modules: `- name: …`, or names that a `·` separates.

use std::collections::BTreeSet;

use super::{root, rust_files};

#[test]
fn lists_of_modules_name_every_module_and_nothing_else() {
    let mut lists = 0;
    for file in rust_files(&root()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let (modules, docs) = (modules(&text), docs(&text));
        let items = items(&docs);
        if items.is_disjoint(&modules) {
            continue;
        }
        lists += 1;
        let named: BTreeSet<_> = quoted(&docs).map(module_of).collect();
        let (missing, unknown) = (modules.difference(&named), items.difference(&modules));
        let (missing, unknown): (Vec<_>, Vec<_>) = (missing.collect(), unknown.collect());
        assert!(missing.is_empty(), "{} does not list {missing:?}", file.display());
        assert!(unknown.is_empty(), "{} lists {unknown:?}, which are no modules", file.display());
    }
    assert!(lists > 30, "{lists} lists");
}

/// Returns the modules that a file declares, without unit tests and those that several binaries share.
fn modules(text: &str) -> BTreeSet<String> {
    let (mut modules, mut before) = (BTreeSet::new(), "");
    for line in text.lines() {
        let declared = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        let name = declared.strip_prefix("mod ").and_then(|name| name.strip_suffix(';'));
        let is_listed = !before.starts_with("#[path") && before != "#[cfg(test)]";
        modules.extend(name.filter(|_| is_listed).map(str::to_owned));
        before = line;
    }
    modules
}

fn docs(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// Returns the subjects of the lists that are not types.
fn items(docs: &str) -> BTreeSet<String> {
    let is_module = |name: &&str| !name.starts_with(|c: char| c.is_ascii_uppercase());
    let lines = docs.lines().filter_map(|line| line.strip_prefix(['-', '*'])?.split_once(": "));
    let mut items: BTreeSet<_> = lines.flat_map(|(subjects, _)| quoted(subjects).filter(is_module)).collect();
    for paragraph in docs.split("\n\n").filter(|paragraph| paragraph.contains(" · ")) {
        let subjects = paragraph.split(" · ");
        items.extend(subjects.filter_map(|subject| quoted(subject).find(is_module)));
    }
    items.into_iter().map(str::to_owned).collect()
}

/// Returns the names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    text.split('`').skip(1).step_by(2).filter(is_name)
}

/// Converts the name of a type to that of its module. That of a module is unchanged.
fn module_of(name: &str) -> String {
    let mut module = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !module.is_empty() {
            module.push('_');
        }
        module.push(letter.to_ascii_lowercase());
    }
    module
}
