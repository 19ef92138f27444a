//! Imports between the modules of each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

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
            let tokens: TokenStream = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            let mut found = Vec::new();
            collect_paths(tokens, &mut found);
            paths.insert(names.join("::"), found);
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

/// Collects the paths in the code, without that of `mod tests`.
fn collect_paths(tokens: TokenStream, found: &mut Vec<Found>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let word = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        match (&tokens[at], word(at).as_str()) {
            (TokenTree::Ident(_), "mod") if word(at + 1) == "tests" => at += 2,
            (TokenTree::Ident(_), "crate" | "self" | "super") if is_colon(tokens.get(at + 1)) => {
                let is_use = at > 0 && word(at - 1) == "use";
                let is_public = at > 1 && (word(at - 2) == "pub" || is_visibility(&tokens[at - 2]));
                let mut paths = Vec::new();
                at = read_path(&tokens, at, &[], &mut paths);
                let is_reexport = is_use && is_public;
                found.extend(paths.into_iter().map(|segments| Found { segments, is_reexport }));
                continue;
            }
            (TokenTree::Group(group), _) => collect_paths(group.stream(), found),
            _ => {}
        }
        at += 1;
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// Returns whether the token is the `(crate)` of `pub(crate)`.
fn is_visibility(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

/// Reads a path or a tree of imports that starts at `at`. Returns the index after it.
fn read_path(tokens: &[TokenTree], mut at: usize, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let tree: Vec<_> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                for branch in tree.split(is_comma).filter(|branch| !branch.is_empty()) {
                    read_path(branch, 0, &path, paths);
                }
                return at + 1;
            }
            _ => {}
        }
        at += 1;
        if !(is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))) {
            break;
        }
        at += 2;
    }
    paths.push(path);
    at
}
