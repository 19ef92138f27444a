//! The burst limit of a workspace: a quota, windows and the table that counts requests, with clocks that lag
//! and jump, late and repeated counts, quota changes and crashes.

use std::collections::BTreeMap;

use enrich_lib::memory::WindowTable;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use futures_executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

proptest! {
    #![proptest_config(ProptestConfig { rng_algorithm: RngAlgorithm::XorShift, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn no_window_exceeds_its_limit(steps in vec(step(), 1..60)) {
        let mut machine = Machine::default();
        for step in steps {
            machine.take(step);
        }
    }
}

const START_MS: u64 = 1_700_000_000_000;

/// Keys: workspaces with the CRC-32 of their names, which shifts their windows. Two keys are of one workspace.
///
/// The shift must be the same on every node and in every version.
const KEYS: [(&str, u64); 3] = [("north", 3_693_752_514), ("north", 3_693_752_514), ("south", 1_091_925_364)];

const NODES: usize = 3;

const LATE_MAX_MS: u64 = Window::LATE_MAX.as_millis() as u64;

/// A request that is late by this much is taken for a clock that was set back, and time continues from there.
///
/// A request that is less late, but by over [`Window::LATE_MAX`], does not change the time.
const JUMP_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Advances the time by this many milliseconds.
    Wait(u64),
    /// Sets how far the clock of a node is ahead.
    Skew {
        node: usize,
        ahead_ms: i64,
    },
    /// Counts a request `late_ms` after its node read the clock.
    Request {
        key: usize,
        node: usize,
        late_ms: u64,
    },
    /// Counts the last request again, as after a lost reply.
    Replay,
    Quota {
        key: usize,
        limit: u32,
        seconds: u32,
    },
    /// Loses all counters.
    Crash,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    key: usize,
    quota: Quota,
    read_ms: u64,
}

/// Counts of each window with one length of one workspace.
///
/// The table keeps the counters of all windows that late requests may still be counted in. It may lose them
/// after a request for any other window. The guaranteed counts then start from zero. It may also lose those
/// that have expired when a window of another length opens.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// All counts since the last crash: the upper limit of the table's count.
    ever: BTreeMap<u64, u64>,
    /// The guaranteed counts: the lower limit of the table's count.
    surely: BTreeMap<u64, u64>,
    /// The latest time that a node has read.
    read_ms: u64,
    beginnings: u32,
}

impl Counted {
    fn count(&mut self, window: u64, read_ms: u64, closes_ms: u64) {
        let late_ms = self.read_ms.saturating_sub(closes_ms);
        let is_jump = late_ms >= JUMP_MS;
        if is_jump || self.read_ms >= closes_ms + LATE_MAX_MS {
            self.surely.clear();
            self.beginnings += 1;
        }
        if is_jump {
            self.read_ms = 0;
        }
        self.read_ms = self.read_ms.max(read_ms);
        *self.surely.entry(window).or_default() += 1;
        *self.ever.entry(window).or_default() += 1;
    }

    /// Forgets the windows before this one that have expired.
    fn expire(&mut self, window: u64) {
        let kept = self.surely.split_off(&window);
        self.beginnings += u32::from(!self.surely.is_empty());
        self.surely = kept;
    }
}

/// A table and a model of it, which records every count.
struct Machine {
    now_ms: u64,
    ahead_ms: [i64; NODES],
    quotas: [Quota; KEYS.len()],
    /// By workspace and length of the windows, in milliseconds.
    counted: BTreeMap<(&'static str, u64), Counted>,
    last: Option<Request>,
    table: WindowTable,
    /// The number of admitted requests by workspace, length and window, and [`Counted::beginnings`].
    admitted: BTreeMap<(&'static str, u64, u64, u32), u64>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            now_ms: START_MS,
            ahead_ms: [0; NODES],
            quotas: [Quota::new(2, 1).expect("a quota"); KEYS.len()],
            counted: Default::default(),
            last: None,
            table: WindowTable::default(),
            admitted: BTreeMap::new(),
        }
    }
}

impl Machine {
    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.now_ms += ms,
            Step::Skew { node, ahead_ms } => self.ahead_ms[node] = ahead_ms,
            Step::Request { key, node, late_ms } => {
                let read_ms = self.now_ms.saturating_add_signed(self.ahead_ms[node]) - late_ms;
                self.request(Request { key, quota: self.quotas[key], read_ms });
            }
            Step::Replay => self.last.into_iter().for_each(|request| self.request(request)),
            Step::Quota { key, limit, seconds } => {
                self.quotas[key] = Quota::new(limit, seconds).expect("a quota");
            }
            Step::Crash => {
                self.table = WindowTable::default();
                for counted in self.counted.values_mut() {
                    *counted = Counted { beginnings: counted.beginnings + 1, ..Counted::default() };
                }
            }
        }
    }

    fn request(&mut self, request: Request) {
        let Request { key, quota, read_ms } = request;
        let length_ms = u64::from(quota.window_seconds()) * 1_000;
        let (name, shift) = KEYS[key];
        let shift_ms = shift % length_ms;
        let number = (read_ms + shift_ms) / length_ms;
        let closes_ms = (number + 1) * length_ms - shift_ms;
        let opens_ms = closes_ms - length_ms;
        for ((_, other_ms), other) in self.counted.range_mut((name, 0)..=(name, u64::MAX)) {
            if *other_ms != length_ms {
                other.expire((opens_ms - LATE_MAX_MS + shift % other_ms) / other_ms);
            }
        }
        let counted = self.counted.entry((name, length_ms)).or_default();
        counted.count(number, read_ms, closes_ms);
        let (surely, ever, beginnings) = (counted.surely[&number], counted.ever[&number], counted.beginnings);
        self.last = Some(request);

        let id: WorkspaceId = name.parse().expect("a name");
        let read = Timestamp::from_unix_ms(read_ms);
        let window = quota.window(&id, read);
        assert_eq!((window.number(), window.closes_at().unix_ms()), (number, closes_ms));

        let count = block_on(self.table.count(&window)).expect("a table in memory does not fail");
        assert!((surely..=ever).contains(&count), "{count} of {surely} to {ever}, {request:?}");

        let limit = u64::from(quota.limit());
        let answer = window.admit(count, read);
        assert_eq!(answer.is_ok(), count <= limit, "{count} of {limit}");
        let (Ok(standing) | Err(standing)) = answer;
        assert_eq!(standing.limit, quota.limit());
        assert_eq!(u64::from(standing.remaining), limit.saturating_sub(count));
        // At the reset time, the window has been over for less than a second.
        let retry_ms = read_ms + standing.reset_seconds * 1_000;
        assert!(standing.reset_seconds >= 1);
        assert!((closes_ms..closes_ms + 1_000).contains(&retry_ms), "{standing:?}");
        assert_ne!(quota.window(&id, Timestamp::from_unix_ms(retry_ms)).number(), number);

        if answer.is_ok() {
            let admitted = self.admitted.entry((name, length_ms, number, beginnings)).or_default();
            *admitted += 1;
            assert!(*admitted <= limit, "{admitted} requests of {limit}");
        }
    }
}

/// Generates steps with few workspaces, low limits and short windows, so that limits and boundaries are
/// reached often.
fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let node = || 0..NODES;
    let wait = prop_oneof![6 => 0..200_u64, 3 => 200..1_500_u64, 1 => 1_500..10_000_u64];
    let ahead_ms = prop_oneof![6 => -900..=0_i64, 2 => -5_000..5_000_i64, 1 => -900_000_000..900_000_000_i64];
    let late_ms = prop_oneof![3 => Just(0), 1 => 0..1_000_u64, 1 => 0..10_000_u64];
    let seconds = prop_oneof![6 => 1..4_u32, 3 => 4..13_u32, 1 => 1..=Quota::WINDOW_SECONDS_MAX];
    prop_oneof![
        4 => wait.prop_map(Step::Wait),
        1 => (node(), ahead_ms).prop_map(|(node, ahead_ms)| Step::Skew { node, ahead_ms }),
        16 => (key(), node(), late_ms)
            .prop_map(|(key, node, late_ms)| Step::Request { key, node, late_ms }),
        3 => Just(Step::Replay),
        1 => (key(), 1..6_u32, seconds)
            .prop_map(|(key, limit, seconds)| Step::Quota { key, limit, seconds }),
        1 => Just(Step::Crash),
    ]
}
