//! Imports between the modules of each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{root, rust_files};

#[test]
fn no_module_imports_itself_in_a_circle() {
    let root = root();
    let sources = rust_files(&root)
        .into_iter()
        .filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    let sources: Vec<_> = sources.map(|file| file.parent().unwrap().to_owned()).collect();
    assert!(sources.len() > 15, "{sources:?}");
    for src in sources {
        let imports = Imports::read(&src);
        for module in imports.0.keys() {
            let circle = imports.path(module, module);
            assert!(circle.is_none(), "{}: {}", src.display(), circle.unwrap().join(" -> "));
        }
    }
}

#[test]
fn lookup_and_ports_are_independent() {
    let imports = Imports::read(&root().join("enrich-lib/src"));
    assert!(imports.0["drive"].contains("lookup") && imports.0["drive"].contains("ports"), "{imports:?}");
    assert_eq!(imports.path("lookup", "ports"), None);
    assert_eq!(imports.path("ports", "lookup"), None);
}

/// The modules that each module of a crate imports. A module is a file, and its name a path such as
/// `email::syntax`. The root module has the empty name.
#[derive(Debug)]
struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Reads the crate in the directory `src`, without its binaries and unit tests.
    fn read(src: &Path) -> Self {
        let mut paths = BTreeMap::new();
        for file in rust_files(src) {
            let path = file.strip_prefix(src).unwrap().with_extension("");
            let mut names: Vec<_> = path.iter().map(|name| name.to_str().unwrap()).collect();
            if names[0] == "bin" || names.contains(&"tests") {
                continue;
            }
            names.pop_if(|name| matches!(*name, "mod" | "lib" | "main"));
            paths.insert(names.join("::"), find_paths(&std::fs::read_to_string(&file).unwrap()));
        }
        let resolved: BTreeMap<_, Vec<_>> = paths
            .iter()
            .map(|(module, found)| {
                let resolve = |path: &Found| (path.is_reexport, resolve(&paths, module, &path.segments));
                (module, found.iter().map(resolve).collect())
            })
            .collect();
        // An import of a re-exported item is an import of the module that defines it.
        let mut origins = BTreeMap::new();
        for (module, found) in &resolved {
            for (_, (target, rest)) in found.iter().filter(|(is_reexport, _)| *is_reexport) {
                if let Some(item) = rest.last() {
                    origins.insert((module.as_str(), item.as_str()), target);
                }
            }
        }
        let imports = resolved.iter().map(|(module, found)| {
            let targets = found.iter().filter(|(is_reexport, _)| !is_reexport).map(|(_, (target, rest))| {
                let mut target = target;
                while let Some(item) = rest.first()
                    && let Some(origin) = origins.get(&(target.as_str(), item.as_str()))
                    && origin != &target
                {
                    target = origin;
                }
                target.clone()
            });
            ((*module).clone(), targets.filter(|target| target != *module).collect())
        });
        Self(imports.collect())
    }

    /// Returns the imports that lead from one module to another, or `None`.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![vec![from.to_owned()]];
        while let Some(path) = waiting.pop() {
            for next in &self.0[path.last().unwrap()] {
                let path = [&path[..], std::slice::from_ref(next)].concat();
                if next == to {
                    return Some(path);
                }
                if seen.insert(next) {
                    waiting.push(path);
                }
            }
        }
        None
    }
}

/// A path that starts with `crate`, `self` or `super`.
struct Found {
    segments: Vec<String>,
    /// Part of a `pub use`.
    is_reexport: bool,
}

/// Returns the module that a path in `module` leads to, and the segments after it.
fn resolve(
    modules: &BTreeMap<String, Vec<Found>>,
    module: &str,
    segments: &[String],
) -> (String, Vec<String>) {
    let mut current: Vec<_> = match segments[0].as_str() {
        "crate" => Vec::new(),
        _ => module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    };
    let mut rest =
        segments.iter().skip_while(|segment| matches!(segment.as_str(), "crate" | "self")).peekable();
    while rest.next_if(|segment| *segment == "super").is_some() {
        current.pop();
    }
    while let Some(segment) = rest.next_if(|segment| {
        let child = [&current[..], &[(*segment).clone()]].concat().join("::");
        modules.contains_key(&child)
    }) {
        current.push(segment.clone());
    }
    (current.join("::"), rest.cloned().collect())
}

/// Returns the paths in the code of a file, without its unit tests.
fn find_paths(text: &str) -> Vec<Found> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let code = text.split("mod tests {").next().unwrap_or_default();
    let code =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let starts = ["crate::", "self::", "super::"].into_iter().flat_map(|start| code.match_indices(start));
    let mut found = Vec::new();
    for (at, _) in starts.filter(|(at, _)| !code[..*at].ends_with(is_part)) {
        let line = code[..at].lines().next_back().unwrap_or_default().trim_start();
        let is_reexport = line.starts_with("pub") && line.ends_with("use ");
        let length = code[at..].find(|c| !is_part(c)).unwrap_or(code.len() - at);
        let (path, rest) = code[at..].split_at(length);
        // `path::{first, second}`, or one path.
        let names: Vec<_> = match rest.strip_prefix('{').and_then(|rest| rest.split('}').next()) {
            Some(names) => names.split(',').filter_map(|name| name.split_whitespace().next()).collect(),
            None => vec![""],
        };
        found.extend(names.into_iter().map(|name| {
            let segments = path.split("::").chain(name.split("::")).filter(|name| !name.is_empty());
            Found { segments: segments.map(str::to_owned).collect(), is_reexport }
        }));
    }
    found
}
