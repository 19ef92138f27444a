//! Built-in vendor descriptions, based on public documentation. Each file states its sources and when they
//! were read.

use super::description::Description;

const FILES: [(&str, &str); 5] = [
    ("contactout", include_str!("../../descriptions/contactout.toml")),
    ("enrich-layer", include_str!("../../descriptions/enrich-layer.toml")),
    ("hunter", include_str!("../../descriptions/hunter.toml")),
    ("leadmagic", include_str!("../../descriptions/leadmagic.toml")),
    ("people-data-labs", include_str!("../../descriptions/people-data-labs.toml")),
];

impl Description {
    /// Returns the built-in description with this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("tested for every name"))
    }

    /// Iterates over the names that [`Description::built_in`] accepts, sorted.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }
}
