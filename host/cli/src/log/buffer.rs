//! The lines that the log thread has not written yet.

use std::cell::OnceCell;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A buffer of complete lines between the logging threads and the log thread.
///
/// Each thread appends to its own shard, so that threads do not contend. The log thread writes all shards at
/// intervals. The lines of one thread stay in order.
#[derive(Default)]
pub(crate) struct Buffer {
    /// More threads than shards share shards.
    shards: [Shard; 16],
    state: Mutex<State>,
    /// Notified when a field of `state` changes.
    changed: Condvar,
    /// Number of lines that were dropped or could not be written.
    dropped: AtomicU64,
}

/// The lines of one thread. Aligned to cache lines, so that shards do not share any.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Lines that did not fit after those in `bytes`.
    dropped: u64,
}

#[derive(Default)]
struct State {
    has_lines: bool,
    is_writing: bool,
    /// Disables the interval.
    is_flushing: bool,
}

impl Buffer {
    /// Maximum time between a line and its write. One write per line would take longer than a lookup.
    const INTERVAL: Duration = Duration::from_millis(5);
    /// Capacity of a shard, about 5,000 lines. As many again may be in the batch that is being written.
    const BYTES_MAX: usize = 1 << 20;
    /// Capacity to keep after a burst is written.
    const BYTES_KEPT: usize = 128 << 10;

    /// Appends the line that `format` appends to its argument. `format` must not log.
    pub(crate) fn append(&self, format: impl FnOnce(&mut Vec<u8>)) {
        let mut lines = lock(&self.shards[shard_index() % self.shards.len()].0);
        if lines.bytes.len() >= Self::BYTES_MAX {
            lines.dropped += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_first = lines.bytes.is_empty();
        format(&mut lines.bytes);
        if is_first && !mem::replace(&mut lock(&self.state).has_lines, true) {
            self.changed.notify_all();
        }
    }

    /// Returns the number of lines that were lost so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts lines that could not be written.
    pub(crate) fn add_unwritten(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Passes batches of lines to `write`, each with the number of lines that were dropped after it. Never
    /// returns.
    pub(crate) fn drain(&self, mut write: impl FnMut(&[u8], u64)) {
        let mut batch = Vec::new();
        loop {
            let state = self.changed.wait_while(lock(&self.state), |state| !state.has_lines);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            let is_early = |state: &mut State| !state.is_flushing;
            let wait = self.changed.wait_timeout_while(state, Self::INTERVAL, is_early);
            let (mut state, _) = wait.unwrap_or_else(PoisonError::into_inner);
            (state.has_lines, state.is_writing) = (false, true);
            drop(state);
            for Shard(lines) in &self.shards {
                let mut lines = lock(lines);
                if !lines.bytes.is_empty() {
                    mem::swap(&mut lines.bytes, &mut batch);
                    let dropped = mem::take(&mut lines.dropped);
                    drop(lines);
                    write(&batch, dropped);
                    batch.clear();
                    batch.shrink_to(Self::BYTES_KEPT);
                }
            }
            let mut state = lock(&self.state);
            state.is_writing = false;
            if state.is_flushing {
                self.changed.notify_all();
            }
        }
    }

    /// Waits until all lines are written, but no longer than `time_max`.
    pub(crate) fn flush(&self, time_max: Duration) {
        let mut state = lock(&self.state);
        state.is_flushing = true;
        self.changed.notify_all();
        let is_behind = |state: &mut State| state.is_writing || state.has_lines;
        drop(self.changed.wait_timeout_while(state, time_max, is_behind));
    }
}

#[cfg(test)]
impl Buffer {
    /// Removes and returns all lines.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.shards.iter().flat_map(|Shard(lines)| mem::take(&mut lock(lines).bytes)).collect()
    }
}

/// Returns the index of the calling thread. Threads are counted in the order in which they log their first
/// lines.
fn shard_index() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: OnceCell<usize> = const { OnceCell::new() };
    }
    INDEX.with(|index| *index.get_or_init(|| THREADS.fetch_add(1, Ordering::Relaxed)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes one event per call, as `tracing_subscriber` writes them.
impl io::Write for &Buffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.append(|lines| lines.extend_from_slice(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    /// Starts a log thread that sends its batches.
    fn drain(buffer: &Arc<Buffer>) -> Receiver<(Vec<u8>, u64)> {
        let (batches, received) = channel();
        let buffer = buffer.clone();
        thread::spawn(move || {
            buffer.drain(|lines, dropped| batches.send((lines.to_vec(), dropped)).unwrap())
        });
        received
    }

    #[test]
    fn a_full_buffer_drops_lines_and_counts_them() {
        let buffer = Arc::new(Buffer::default());
        let line = [b'x'; Buffer::BYTES_MAX / 4];
        (0..7).for_each(|_| buffer.append(|lines| lines.extend_from_slice(&line)));
        let batches = drain(&buffer);
        let (lines, dropped) = batches.recv().unwrap();
        assert_eq!((lines.len(), dropped), (Buffer::BYTES_MAX, 3));
        buffer.append(|lines| lines.push(b'\n'));
        assert_eq!(batches.recv().unwrap(), (b"\n".to_vec(), 0));
    }

    #[test]
    fn writes_a_line_without_another_one_and_without_a_flush() {
        let buffer = Arc::new(Buffer::default());
        let batches = drain(&buffer);
        for line in ["one\n", "two\n"] {
            buffer.append(|lines| lines.extend_from_slice(line.as_bytes()));
            assert_eq!(batches.recv().unwrap(), (line.as_bytes().to_vec(), 0));
        }
    }

    #[test]
    fn flushes_the_lines_of_all_threads_in_their_order() {
        const THREADS: usize = 20;
        const LINES: usize = 2_000;
        let buffer = Arc::new(Buffer::default());
        let batches = drain(&buffer);
        thread::scope(|scope| {
            for name in 0..THREADS {
                let buffer = &buffer;
                scope.spawn(move || {
                    let log = |line| buffer.append(|lines| lines.extend(format!("{name} {line}\n").bytes()));
                    (0..LINES).for_each(log);
                });
            }
        });
        buffer.flush(Duration::from_secs(60));
        let written: Vec<u8> = batches.try_iter().flat_map(|(lines, _)| lines).collect();
        let mut next = [0; THREADS];
        for line in String::from_utf8(written).unwrap().lines() {
            let (name, line) = line.split_once(' ').unwrap();
            let next: &mut usize = &mut next[name.parse::<usize>().unwrap()];
            assert_eq!(line.parse(), Ok(*next), "{name}");
            *next += 1;
        }
        assert_eq!(next, [LINES; THREADS]);
    }
}
