//! The arguments that the statements of a batch have in common.

use std::collections::BTreeMap;

use enrich_lib::credit::Hold;

/// The workspaces of a batch.
pub(crate) struct Names<'a> {
    /// Each workspace once.
    pub(crate) names: Vec<&'a str>,
    /// For each item, the index of its workspace in `names`, from 1.
    pub(crate) numbers: Vec<i64>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(holds: impl Iterator<Item = &'a Hold>) -> Self {
        let (mut names, mut index) = (Vec::new(), BTreeMap::new());
        let numbers = holds.map(|hold| {
            let name = hold.workspace.as_str();
            *index.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() as i64
            })
        });
        let numbers = numbers.collect();
        Self { names, numbers }
    }
}

/// Returns the receipts of a batch as column values, and none if no hold has one.
pub(crate) fn receipts<'a>(holds: impl Iterator<Item = &'a Hold> + Clone) -> Vec<Option<&'a [u8]>> {
    if holds.clone().all(|hold| hold.receipt.is_none()) {
        return Vec::new();
    }
    holds.map(|hold| Some(&hold.receipt.as_ref()?.as_bytes()[..])).collect()
}

/// Returns the ids of the lookups as column values.
pub(crate) fn lookup_ids<'a>(holds: impl Iterator<Item = &'a Hold>) -> Vec<&'a [u8]> {
    holds.map(|hold| &hold.lookup_id.as_bytes()[..]).collect()
}
