//! A file: its cached content, and the possible contents after a power cut.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Probability that a cut tears an unsynced sector, that is, writes only part of it.
const TEAR: f64 = 0.1;

#[derive(Clone, Debug)]
pub(crate) struct File {
    sector_bytes: usize,
    /// The content that a read returns: everything written so far.
    cached: Vec<u8>,
    /// The content that survives any cut.
    durable: Vec<u8>,
    /// The contents of each sector since the last sync, oldest first. A cut may leave any of them, because a
    /// cache writes at any time and in any order.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The sizes of the file since the last sync.
    unsynced_sizes: Vec<usize>,
    /// The file before an unsynced truncation. A file system truncates atomically, and later allocates new
    /// sectors for data written past the end. A cut therefore never leaves a mix of old and new sectors.
    before_truncation: Option<Box<File>>,
}

impl File {
    pub(crate) fn new(sector_bytes: usize) -> Self {
        Self {
            sector_bytes,
            cached: Vec::new(),
            durable: Vec::new(),
            unsynced: BTreeMap::new(),
            unsynced_sizes: Vec::new(),
            before_truncation: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cached.len()
    }

    /// Reads into `buffer` from `offset` and fills the rest with zeros. Returns the number of bytes read.
    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> usize {
        let available = self.cached.get(offset..).unwrap_or_default();
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        buffer[count..].fill(0);
        count
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if end > self.cached.len() {
            self.resize(end);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        self.record_unsynced(offset, end);
    }

    pub(crate) fn truncate(&mut self, size: usize) {
        if size >= self.cached.len() {
            return self.resize(size);
        }
        let before = self.clone();
        self.cached.truncate(size);
        self.durable.truncate(size);
        self.unsynced_sizes.retain(|unsynced| *unsynced <= size);
        self.unsynced_sizes.push(size);
        self.unsynced.split_off(&size.div_ceil(self.sector_bytes));
        self.before_truncation = Some(Box::new(before));
    }

    pub(crate) fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            let range = sector_range(sector, self.sector_bytes, self.cached.len());
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
        self.unsynced_sizes.clear();
        self.before_truncation = None;
    }

    /// Forgets that data is unsynced: the next sync does not write it.
    pub(crate) fn lose_unsynced(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        self.unsynced.clear();
        self.unsynced_sizes.clear();
        self.before_truncation = None;
    }

    /// Returns the file after a cut: each unsynced sector has any of its contents, or parts of two. `newest`
    /// is the probability that a sector has its latest content.
    pub(crate) fn after_cut(&self, newest: f64, rng: &mut StdRng) -> Self {
        if let Some(before) = &self.before_truncation
            && !rng.random_bool(newest)
            && rng.random()
        {
            return before.after_cut(newest, rng);
        }
        let sizes = [&[self.durable.len()], &self.unsynced_sizes[..]].concat();
        let size = if rng.random_bool(newest) { self.len() } else { *sizes.choose(rng).unwrap_or(&0) };
        let mut remaining = self.durable.clone();
        remaining.resize(size, 0);
        for (&sector, versions) in &self.unsynced {
            let range = sector_range(sector, self.sector_bytes, size);
            let mut older = sector_content(&self.durable, sector, self.sector_bytes);
            let kept =
                if rng.random_bool(newest) { versions.len() } else { rng.random_range(0..=versions.len()) };
            for version in &versions[..kept] {
                older.clone_from(version);
            }
            if kept < versions.len() && rng.random_bool(TEAR) {
                let torn_at = rng.random_range(0..=self.sector_bytes);
                older[..torn_at].copy_from_slice(&versions[kept][..torn_at]);
            }
            let count = range.len();
            remaining[range].copy_from_slice(&older[..count]);
        }
        Self { cached: remaining.clone(), durable: remaining, ..Self::new(self.sector_bytes) }
    }

    fn resize(&mut self, size: usize) {
        self.cached.resize(size, 0);
        self.unsynced_sizes.push(size);
    }

    fn record_unsynced(&mut self, start: usize, end: usize) {
        if start == end {
            return;
        }
        for sector in start / self.sector_bytes..=(end - 1) / self.sector_bytes {
            let content = sector_content(&self.cached, sector, self.sector_bytes);
            self.unsynced.entry(sector).or_default().push(content);
        }
    }
}

/// Returns the byte range of a sector in a file of `size` bytes.
fn sector_range(sector: usize, sector_bytes: usize, size: usize) -> std::ops::Range<usize> {
    let start = sector * sector_bytes;
    start.min(size)..(start + sector_bytes).min(size)
}

/// Returns a whole sector, with zeros past the end of the file.
fn sector_content(content: &[u8], sector: usize, sector_bytes: usize) -> Vec<u8> {
    let mut whole = content[sector_range(sector, sector_bytes, content.len())].to_vec();
    whole.resize(sector_bytes, 0);
    whole
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    const SECTOR: usize = 4;

    #[test]
    fn torn_sector_keeps_unwritten_bytes() {
        let mut file = File::new(SECTOR);
        file.write(0, b"abcd");
        file.sync();
        file.write(2, b"XY");
        let contents = [b"abcd", b"abXd", b"abXY"].map(|bytes| bytes.to_vec());
        assert_eq!(contents_after_cuts(&file), BTreeSet::from(contents));
    }

    fn contents_after_cuts(file: &File) -> BTreeSet<Vec<u8>> {
        let mut rng = StdRng::seed_from_u64(1);
        (0..2_000).map(|_| file.after_cut(0.3, &mut rng).durable).collect()
    }
}
