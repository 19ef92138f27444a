//! A part of the directory in memory: the people whose hashes begin with the same 16 bits.

use rusqlite::Connection;

use crate::error::StoreError;
use crate::hash::EmailHash;

/// The first 16 bits of a hash.
pub(crate) type PartId = u16;

/// How many parts there are. At 10⁷ people a part has 150 of them, and is read again in less than a millisecond.
pub(crate) const PARTS: usize = 1 << PartId::BITS;

/// The part that a hash belongs to.
pub(crate) fn part_of(hash: &EmailHash) -> PartId {
    PartId::from_be_bytes([hash[0], hash[1]])
}

/// The first and the last hash that a range of parts can have.
pub(crate) fn hashes(first: PartId, last: PartId) -> [EmailHash; 2] {
    let mut bounds = [EmailHash::default(), [u8::MAX; 16]];
    bounds[0][..2].copy_from_slice(&first.to_be_bytes());
    bounds[1][..2].copy_from_slice(&last.to_be_bytes());
    bounds
}

/// Says that a part is changed by this commit. To be said of every change to `person`, in the same transaction.
pub(crate) fn count_change(db: &Connection, id: PartId) -> Result<(), StoreError> {
    let count =
        "INSERT INTO part (id, changes) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET changes = changes + 1";
    db.prepare_cached(count)?.execute([id])?;
    Ok(())
}

/// What a row begins with: the hash without its first 16 bits, and how long the name is. The name follows.
const HEAD_BYTES: usize = REST_BYTES + 2;
const REST_BYTES: usize = 14;
const START_BYTES: usize = size_of::<u32>();

/// The most rows that a look-up goes through, on average; each has a share of the offset that leads to them.
const BUCKET_ROWS: usize = 2;

/// People in the order of their hashes, one row after the other. A bucket is an equal share of all hashes, so its rows
/// are neighbours.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Where the rows of each bucket begin, in four bytes each, and then the rows: they are often in one page of memory,
    /// and waiting for memory is most of what a look-up costs.
    bytes: Box<[u8]>,
    buckets: u32,
}

impl Part {
    /// The name of this person's profile, if it is here: all bits of the hash are compared.
    pub(crate) fn find(&self, hash: &EmailHash) -> Option<&[u8]> {
        let (_, rest) = hash.split_first_chunk::<2>()?;
        let bucket = bucket(rest, self.buckets as usize);
        let start = self.start(bucket)?;
        let end = self.start(bucket + 1).unwrap_or(self.bytes.len());
        let mut rows = self.bytes.get(start..end)?;
        while let Some(row) = Row::first(rows) {
            if row.rest == rest {
                return Some(row.name);
            }
            rows = row.others;
        }
        None
    }

    fn start(&self, bucket: usize) -> Option<usize> {
        let (starts, _) = self.bytes[..self.buckets as usize * START_BYTES].as_chunks();
        starts.get(bucket).map(|start| u32::from_le_bytes(*start) as usize)
    }
}

/// The share that a hash without its first 16 bits falls into, of so many equal ones.
fn bucket(rest: &[u8], buckets: usize) -> usize {
    let first = rest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    ((u64::from(first) * buckets as u64) >> u32::BITS) as usize
}

struct Row<'a> {
    rest: &'a [u8],
    name: &'a [u8],
    others: &'a [u8],
}

impl<'a> Row<'a> {
    fn first(rows: &'a [u8]) -> Option<Self> {
        let (head, others) = rows.split_first_chunk::<HEAD_BYTES>()?;
        let (rest, len) = head.split_at(REST_BYTES);
        let (name, others) = others.split_at_checked(usize::from(u16::from_le_bytes([len[0], len[1]])))?;
        Some(Self { rest, name, others })
    }
}

/// Makes parts, one after the other, in the same memory.
#[derive(Debug, Default)]
pub(crate) struct PartBuilder {
    rows: Vec<u8>,
    people: usize,
    bytes: Vec<u8>,
}

/// A name that no profile has, as it is longer than 65,535 octets.
#[derive(Debug, thiserror::Error)]
#[error("the profile's name is too long")]
pub(crate) struct NameTooLong;

impl PartBuilder {
    /// Adds a person, whose hash is greater than those before.
    pub(crate) fn push(&mut self, hash: &EmailHash, name: &str) -> Result<(), NameTooLong> {
        let len = u16::try_from(name.len()).map_err(|_| NameTooLong)?;
        self.rows.extend_from_slice(&hash[2..]);
        self.rows.extend_from_slice(&len.to_le_bytes());
        self.rows.extend_from_slice(name.as_bytes());
        self.people += 1;
        Ok(())
    }

    /// The part of those who were added since the last one.
    pub(crate) fn build(&mut self) -> Part {
        let buckets = self.people.div_ceil(BUCKET_ROWS);
        let len = buckets * START_BYTES + self.rows.len();
        let mut begun = 0;
        let mut rows = &self.rows[..];
        // All buckets up to a person's begin there, unless they begin before; those after the last person's, at the end.
        while let Some(row) = Row::first(rows) {
            let bucket = bucket(row.rest, buckets);
            for _ in begun..=bucket {
                self.bytes.extend_from_slice(&((len - rows.len()) as u32).to_le_bytes());
            }
            begun = begun.max(bucket + 1);
            rows = row.others;
        }
        for _ in begun..buckets {
            self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
        }
        self.bytes.extend_from_slice(&self.rows);
        let part = Part { bytes: self.bytes[..].into(), buckets: buckets as u32 };
        self.rows.clear();
        self.bytes.clear();
        self.people = 0;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everybody_in_a_part_is_found_and_nobody_else(
            people in btree_map(any::<[u8; 14]>(), "[a-z0-9-]{1,30}", 0..300),
            strangers in btree_set(any::<[u8; 14]>(), 0..20),
        ) {
            let part = part(people.iter().map(|(rest, name)| (hash(rest), name.as_str())));
            for (rest, name) in &people {
                prop_assert_eq!(part.find(&hash(rest)), Some(name.as_bytes()));
            }
            for rest in strangers.iter().filter(|rest| !people.contains_key(*rest)) {
                prop_assert_eq!(part.find(&hash(rest)), None);
            }
        }

        #[test]
        fn people_whose_hashes_differ_in_one_bit_are_not_confused(rest in any::<[u8; 14]>(), bit in 0..112_usize) {
            let mut other = rest;
            other[bit / 8] ^= 1 << (bit % 8);
            let alone = part([(hash(&rest), "ada")].into_iter());
            prop_assert_eq!(alone.find(&hash(&other)), None);
        }
    }

    #[test]
    fn a_person_takes_18_bytes_and_the_name() {
        let people = (0..1_000_u32).map(|n| (n * 4_000_000).to_be_bytes());
        let people: Vec<_> = people.map(|n| hash(&[&n[..], &[0; 10]].concat().try_into().unwrap())).collect();
        let part = part(people.iter().map(|hash| (*hash, "ada-marlowe")));
        assert!(part.bytes.len() <= 1_000 * (18 + "ada-marlowe".len()), "{}", part.bytes.len());
    }

    fn part<'a>(people: impl Iterator<Item = (EmailHash, &'a str)>) -> Part {
        let mut builder = PartBuilder::default();
        people.for_each(|(hash, name)| builder.push(&hash, name).unwrap());
        builder.build()
    }

    fn hash(rest: &[u8; 14]) -> EmailHash {
        let mut hash = [7; 16];
        hash[2..].copy_from_slice(rest);
        hash
    }
}
