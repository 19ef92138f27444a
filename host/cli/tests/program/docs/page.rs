//! Markdown pages: their blocks, links and headings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

pub struct Page {
    /// Relative to the root of all pages.
    pub path: PathBuf,
    pub text: String,
    pub blocks: Vec<Block>,
    /// The inline code outside of headings, with its lines.
    pub code: Vec<(usize, String)>,
    /// The relative links, with their lines.
    pub links: Vec<(usize, String)>,
    /// The anchors of the headings, as GitHub forms them.
    pub anchors: BTreeSet<String>,
}

/// A fenced block.
pub struct Block {
    pub line: usize,
    /// The first word of the info string.
    pub language: String,
    pub kind: Kind,
    pub text: String,
}

/// How a block is tested, according to its info string. CONTRIBUTING.md describes the syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands to run.
    Run(Fixture),
    /// Commands that cannot run in a test.
    Check,
    /// A file that other blocks of the page use.
    File(String),
    /// A complete settings file.
    Settings,
    /// Text that is not tested.
    Text,
}

/// The files and servers that the commands of a page need besides an empty directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixture {
    Nothing,
    Data,
    Server,
}

impl Kind {
    fn of(language: &str, mark: &str) -> Result<Self, &'static str> {
        let reason = mark.strip_prefix("check: ").filter(|reason| !reason.trim().is_empty());
        Ok(match (language, mark) {
            ("sh" | "console", "run") => Self::Run(Fixture::Nothing),
            ("sh" | "console", "run data") => Self::Run(Fixture::Data),
            ("sh" | "console", "run server") => Self::Run(Fixture::Server),
            ("sh" | "console", _) if reason.is_some() => Self::Check,
            ("sh" | "console", _) => return Err("has to be marked with `run` or `check: REASON`"),
            ("toml", "") => Self::Settings,
            ("toml" | "csv", file) if !file.is_empty() && !file.contains(' ') => Self::File(file.to_owned()),
            ("csv" | "http" | "json" | "rust" | "sql" | "text", "") => Self::Text,
            _ => return Err("has an unknown language or mark"),
        })
    }
}

impl Page {
    /// Reads all Markdown files below `root`.
    ///
    /// Errors: the blocks without a valid mark.
    pub fn all(root: &Path) -> Result<Vec<Self>, String> {
        let mut paths = Vec::new();
        find(root, &mut paths);
        paths.sort();
        let (mut pages, mut errors) = (Vec::new(), Vec::new());
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            pages.push(Self::parse(path.strip_prefix(root).unwrap().to_owned(), text, &mut errors));
        }
        if errors.is_empty() { Ok(pages) } else { Err(errors.join("\n")) }
    }

    fn parse(path: PathBuf, text: String, errors: &mut Vec<String>) -> Self {
        let (blocks, code, links) = (Vec::new(), Vec::new(), Vec::new());
        let mut page = Self { path, text: String::new(), blocks, code, links, anchors: BTreeSet::new() };
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let (mut heading, mut block): (Option<String>, Option<Block>) = (None, None);
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match &kind {
                        CodeBlockKind::Fenced(info) => info.trim(),
                        CodeBlockKind::Indented => "",
                    };
                    let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
                    let kind = Kind::of(language, mark.trim()).unwrap_or_else(|why| {
                        errors.push(format!(
                            "{}:{}: the block `{info}` {why}",
                            page.path.display(),
                            line(range.start)
                        ));
                        Kind::Text
                    });
                    block = Some(Block {
                        line: line(range.start),
                        language: language.to_owned(),
                        kind,
                        text: String::new(),
                    });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. })
                    if !dest_url.contains("://") =>
                {
                    page.links.push((line(range.start), dest_url.into_string()));
                }
                Event::Code(code) if heading.is_none() => {
                    page.code.push((line(range.start), code.into_string()));
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(block) = &mut block {
                        block.text += &part;
                    } else if let Some(heading) = &mut heading {
                        *heading += &part;
                    }
                }
                _ => {}
            }
        }
        page.text = text;
        page
    }

    fn add_anchor(&mut self, heading: &str) {
        let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor = heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free =
            std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free);
    }

    /// Returns the place of a block for error messages.
    pub fn place(&self, block: &Block) -> String {
        format!("{}:{}", self.path.display(), block.line)
    }
}

impl Block {
    /// Returns the commands with their expected output, which is empty in blocks without a prompt.
    pub fn commands(&self) -> Vec<(String, String)> {
        if self.language == "sh" {
            return vec![(self.text.clone(), String::new())];
        }
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        commands
    }
}

/// Adds the Markdown files below `dir`, without those of builds.
fn find(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            find(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}
