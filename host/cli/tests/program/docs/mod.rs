//! The documentation: commands run or at least exist, settings are valid, and links resolve. CONTRIBUTING.md
//! describes how blocks are marked.

mod page;
mod usage;
mod world;

use std::path::Path;

use self::page::{Block, Kind, Page};
use self::usage::Usage;
use self::world::World;
use crate::enrich::{Enrich, repository};

fn pages() -> Vec<Page> {
    Page::all(&repository()).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Runs `check` for each block of the repository and panics with all errors.
fn check_blocks(mut check: impl FnMut(&Page, &Block) -> Result<(), String>) {
    let mut errors = Vec::new();
    for page in pages() {
        for block in &page.blocks {
            if let Err(why) = check(&page, block) {
                errors.push(format!("{}: {why}", page.place(block)));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn each_block_has_a_mark() {
    let pages = pages();
    let count = |is_kind: fn(&Kind) -> bool| {
        pages.iter().flat_map(|page| &page.blocks).filter(|block| is_kind(&block.kind)).count()
    };
    // Guards against a parser that finds nothing.
    assert!(count(|kind| matches!(kind, Kind::Run(_))) > 10);
    assert!(count(|kind| matches!(kind, Kind::Check)) > 10);
    assert!(count(|kind| matches!(kind, Kind::Settings)) > 3);
}

#[test]
fn rust_examples_are_doctests() {
    let is_included = |page: &Path| {
        // The guide of the library is tested where all crates of its examples are.
        let (library, name) = match page.file_name().and_then(|name| name.to_str()) {
            Some("README.md") => (page.with_file_name("src/lib.rs"), "../README.md".to_owned()),
            _ => ("tests/src/lib.rs".into(), format!("../../{}", page.display())),
        };
        let library = std::fs::read_to_string(repository().join(library)).unwrap_or_default();
        library.contains(&format!("#[doc = include_str!(\"{name}\")]"))
    };
    assert!(is_included(Path::new("sim/README.md")));
    check_blocks(|page, block| match block.language.as_str() {
        "rust" if !is_included(&page.path) => Err("no doctest runs this block".to_owned()),
        _ => Ok(()),
    });
}

#[cfg(feature = "tools")]
#[test]
fn commands_run() {
    let mut errors = Vec::new();
    for page in pages() {
        let mut world = World::new(&page);
        for block in &page.blocks {
            let Kind::Run(fixture) = block.kind else { continue };
            if let Err(why) = world.run(block, fixture) {
                errors.push(format!("{}: {why}", page.place(block)));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn commands_exist_with_their_flags() {
    let usage = Usage::new();
    let page = pages().remove(0);
    for wrong in
        ["enrich workspaces list", "true && enrich serve --listn 80", "cargo test -p no-such-package"]
    {
        assert!(usage.check(&page, wrong).is_err(), "{wrong}");
    }
    check_blocks(|page, block| match block.kind {
        Kind::Run(_) | Kind::Check => {
            block.commands().iter().try_for_each(|(command, _)| usage.check(page, command))
        }
        _ => Ok(()),
    });
}

/// The changelog may mention commands that no longer exist.
#[test]
fn commands_in_running_text_exist_with_their_flags() {
    let (usage, mut errors) = (Usage::new(), Vec::new());
    for page in pages().iter().filter(|page| page.path != Path::new("CHANGELOG.md")) {
        for (line, code) in &page.code {
            if let Err(why) = usage.check_mention(code) {
                errors.push(format!("{}:{line}: `{code}`: {why}", page.path.display()));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn settings_in_running_text_exist() {
    let variables = Enrich::new().ok(&["config", "example", "--variables"]);
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut found, mut errors) = (0, Vec::new());
    for page in pages().iter().filter(|page| page.path.starts_with("host/docs")) {
        for (line, code) in &page.code {
            let Some((section, name)) = code.split_once('.') else { continue };
            let is_file = ["db", "json", "key", "lock", "moved", "pem", "service", "socket", "toml", "yaml"]
                .contains(&name);
            if is_file || ["", "vendors"].contains(&section) || !is_name(section) || !is_name(name) {
                continue;
            }
            found += 1;
            let variable = format!("ENRICH_{}_{}", section.to_uppercase(), name.to_uppercase());
            if !variables.contains(&variable) {
                errors.push(format!("{}:{line}: `{code}`", page.path.display()));
            }
        }
    }
    assert!(found > 10 && errors.is_empty(), "{found} settings, unknown: {}", errors.join(", "));
}

#[test]
fn settings_are_valid() {
    check_blocks(|page, block| match &block.kind {
        Kind::Settings => World::new(page).check_settings(&block.text),
        Kind::File(name) if block.language == "toml" => {
            World::new(page).check_settings(&format!("[[vendors]]\nfile = \"{name}\"\n"))
        }
        _ => Ok(()),
    });
}

/// Returns the command lines of all commands below `command`, such as `enrich key create`.
fn leaves(command: &clap::Command, line: &str) -> Vec<String> {
    let inner: Vec<_> = command.get_subcommands().filter(|inner| inner.get_name() != "help").collect();
    if inner.is_empty() {
        return vec![line.to_owned()];
    }
    inner.iter().flat_map(|inner| leaves(inner, &format!("{line} {}", inner.get_name()))).collect()
}

#[test]
fn each_command_is_on_a_page_of_the_manual() {
    let pages = pages();
    let manual: Vec<_> = pages.iter().filter(|page| page.path.starts_with("host/docs")).collect();
    assert!(manual.len() <= 12, "the manual has {} pages", manual.len());
    let commands = leaves(&::enrich::command(), "enrich");
    assert!(commands.len() > 30, "{commands:?}");
    let is_missing = |command: &&String| !manual.iter().any(|page| page.text.contains(command.as_str()));
    let missing: Vec<_> = commands.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no page mentions {missing:?}");
}

#[test]
fn links_resolve() {
    check_links(&repository());
}

#[cfg(feature = "tools")]
#[test]
fn links_of_packages_resolve() {
    let release = std::fs::read_to_string(repository().join("host/deploy/release")).unwrap();
    let (copy_pages, _) = release.split_once("copy_pages() {").unwrap().1.split_once("\n}\n").unwrap();
    let package = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("bash");
    shell.env("common", package.path()).current_dir(repository()).args(["-euc", copy_pages]);
    assert!(shell.status().unwrap().success());
    check_links(package.path());
}

fn check_links(root: &Path) {
    let pages = Page::all(root).unwrap();
    assert!(pages.len() > 10);
    let mut errors = Vec::new();
    for page in &pages {
        for (line, link) in &page.links {
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let dir = page.path.parent().unwrap();
            let target = if path.is_empty() { root.join(&page.path) } else { root.join(dir).join(path) };
            let Ok(target) = target.canonicalize() else {
                errors.push(format!("{}:{line}: {link}: there is no such file", page.path.display()));
                continue;
            };
            let linked = pages.iter().find(|page| root.join(&page.path).canonicalize().unwrap() == target);
            if anchor.is_some_and(|anchor| linked.is_none_or(|page| !page.anchors.contains(anchor))) {
                errors.push(format!("{}:{line}: {link}: there is no such heading", page.path.display()));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
