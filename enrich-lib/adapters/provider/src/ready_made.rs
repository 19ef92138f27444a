//! Built-in vendor descriptions, based on public documentation. Each file states its sources and when they were read.

use crate::description::Description;

const FILES: [(&str, &str); 5] = [
    ("contactout", include_str!("../vendors/contactout.toml")),
    ("enrich-layer", include_str!("../vendors/enrich-layer.toml")),
    ("hunter", include_str!("../vendors/hunter.toml")),
    ("leadmagic", include_str!("../vendors/leadmagic.toml")),
    ("people-data-labs", include_str!("../vendors/people-data-labs.toml")),
];

impl Description {
    /// Returns the built-in description with this name.
    pub fn ready_made(name: &str) -> Option<Self> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("a test reads them all"))
    }

    /// Iterates over the names that [`Description::ready_made`] accepts, sorted.
    pub fn ready_made_names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ready_made_description_can_be_used_and_has_the_name_of_its_file() {
        for name in Description::ready_made_names() {
            assert_eq!(Description::ready_made(name).map(|d| d.name().to_owned()).as_deref(), Some(name));
        }
        assert!(Description::ready_made("nobody").is_none());
    }
}
