//! A shard of the directory in memory: the people whose hashes start with the same 16 bits.

use enrich_store::EmailHash;
use rusqlite::Connection;

use crate::error::SqliteError;

/// The first 16 bits of a hash.
pub(crate) type ShardId = u16;

/// Number of shards. With 10⁷ people, a shard has 150 of them and is read in less than a millisecond.
pub(crate) const SHARDS: usize = 1 << ShardId::BITS;

/// Returns the shard that contains a hash.
pub(crate) fn shard_of(hash: &EmailHash) -> ShardId {
    ShardId::from_be_bytes([hash[0], hash[1]])
}

/// Returns the smallest and the largest hash of a range of shards.
pub(crate) fn hashes(first: ShardId, last: ShardId) -> [EmailHash; 2] {
    let mut bounds = [EmailHash::default(), [u8::MAX; 16]];
    bounds[0][..2].copy_from_slice(&first.to_be_bytes());
    bounds[1][..2].copy_from_slice(&last.to_be_bytes());
    bounds
}

/// Increments the change count of a shard. Every transaction that changes `person` must call it.
pub(crate) fn count_change(db: &Connection, id: ShardId) -> Result<(), SqliteError> {
    let count =
        "INSERT INTO shard (id, changes) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET changes = changes + 1";
    db.prepare_cached(count)?.execute([id])?;
    Ok(())
}

/// Size of a row's header: the hash without its first 16 bits, and the length of the name. The name follows.
const HEAD_BYTES: usize = REST_BYTES + 2;
const REST_BYTES: usize = 14;
const START_BYTES: usize = size_of::<u32>();

/// Maximum average number of rows per bucket. A lookup scans one bucket, whose rows share one offset.
const BUCKET_ROWS: usize = 2;

/// People ordered by hash, in consecutive rows. The hash range is divided into buckets of equal width, so the rows of a
/// bucket are contiguous.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// The start offset of each bucket, in four bytes each, followed by the rows. Both are often on the same memory
    /// page, and memory latency dominates the cost of a lookup.
    bytes: Box<[u8]>,
    buckets: u32,
    people: u32,
}

impl Shard {
    pub(crate) fn people(&self) -> u64 {
        self.people.into()
    }

    /// Returns the name of a person's profile. Compares all bits of the hash.
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

/// Returns the bucket, of `buckets` equal ones, for a hash without its first 16 bits.
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

/// Builds shards one after the other and reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct ShardBuilder {
    rows: Vec<u8>,
    people: usize,
    bytes: Vec<u8>,
}

/// The name is longer than 65,535 bytes, which no valid profile name is.
#[derive(Debug, thiserror::Error)]
#[error("the profile's name is too long")]
pub(crate) struct NameTooLong;

impl ShardBuilder {
    /// Adds a person. The hash must be greater than the previous one.
    pub(crate) fn push(&mut self, hash: &EmailHash, name: &str) -> Result<(), NameTooLong> {
        let len = u16::try_from(name.len()).map_err(|_| NameTooLong)?;
        self.rows.extend_from_slice(&hash[2..]);
        self.rows.extend_from_slice(&len.to_le_bytes());
        self.rows.extend_from_slice(name.as_bytes());
        self.people += 1;
        Ok(())
    }

    /// Builds a shard from the people added since the previous call.
    pub(crate) fn build(&mut self) -> Shard {
        let buckets = self.people.div_ceil(BUCKET_ROWS);
        let len = buckets * START_BYTES + self.rows.len();
        let mut begun = 0;
        let mut rows = &self.rows[..];
        // Each bucket without an offset yet, up to the bucket of this row, starts at this row. Buckets after the last
        // row start at the end.
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
        let shard =
            Shard { bytes: self.bytes[..].into(), buckets: buckets as u32, people: self.people as u32 };
        self.rows.clear();
        self.bytes.clear();
        self.people = 0;
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_exactly_the_people_in_a_shard(
            people in btree_map(any::<[u8; 14]>(), "[a-z0-9-]{1,30}", 0..300),
            others in btree_set(any::<[u8; 14]>(), 0..20),
        ) {
            let shard = shard(people.iter().map(|(rest, name)| (hash(rest), name.as_str())));
            for (rest, name) in &people {
                prop_assert_eq!(shard.find(&hash(rest)), Some(name.as_bytes()));
            }
            for rest in others.iter().filter(|rest| !people.contains_key(*rest)) {
                prop_assert_eq!(shard.find(&hash(rest)), None);
            }
        }

        #[test]
        fn distinguishes_hashes_that_differ_in_one_bit(rest in any::<[u8; 14]>(), bit in 0..112_usize) {
            let mut other = rest;
            other[bit / 8] ^= 1 << (bit % 8);
            let alone = shard([(hash(&rest), "ada")].into_iter());
            prop_assert_eq!(alone.find(&hash(&other)), None);
        }
    }

    #[test]
    fn uses_18_bytes_per_person_and_the_name() {
        let people = (0..1_000_u32).map(|n| (n * 4_000_000).to_be_bytes());
        let people: Vec<_> = people.map(|n| hash(&[&n[..], &[0; 10]].concat().try_into().unwrap())).collect();
        let shard = shard(people.iter().map(|hash| (*hash, "ada-marlowe")));
        assert!(shard.bytes.len() <= 1_000 * (18 + "ada-marlowe".len()), "{}", shard.bytes.len());
    }

    fn shard<'a>(people: impl Iterator<Item = (EmailHash, &'a str)>) -> Shard {
        let mut builder = ShardBuilder::default();
        people.for_each(|(hash, name)| builder.push(&hash, name).unwrap());
        builder.build()
    }

    fn hash(rest: &[u8; 14]) -> EmailHash {
        let mut hash = [7; 16];
        hash[2..].copy_from_slice(rest);
        hash
    }
}
