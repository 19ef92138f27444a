//! The burst limit with clock skew between nodes, late and repeated counts, quota changes and crashes.

use std::collections::BTreeMap;
use std::fmt;

use enrich_lib::memory::WindowTable;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::at_once;

const START_MS: u64 = 1_700_000_000_000;

/// Workspaces with the CRC-32 of their names, which shifts their windows.
///
/// The shift must be the same on every node and in every version.
const WORKSPACES: [(&str, u64); 2] = [("north", 3_693_752_514), ("south", 1_091_925_364)];

const NODES: usize = 3;

/// A request that is late by this much is taken for a clock that was set back, and time continues from there.
///
/// A request that is less late, but by over [`Window::LATE_MAX`], does not change the time.
const JUMP_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Advances the time by this many milliseconds.
    Wait(u64),
    /// Sets how far the clock of a node is ahead.
    Skew {
        node: usize,
        ahead_ms: i64,
    },
    /// Counts a request `late_ms` after its node read the clock.
    Request {
        workspace: usize,
        node: usize,
        late_ms: u64,
    },
    /// Counts the last request again, as after a lost reply.
    Replay,
    Quota {
        workspace: usize,
        limit: u32,
        seconds: u32,
    },
    /// Loses all counters.
    Crash,
}

/// Records every count.
#[derive(Clone)]
pub(crate) struct Model {
    now_ms: u64,
    ahead_ms: [i64; NODES],
    quotas: [Quota; WORKSPACES.len()],
    counted: [Counted; WORKSPACES.len()],
    last: Option<Request>,
    /// The expected result of the last step.
    expected: Option<Expected>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    workspace: usize,
    quota: Quota,
    read_ms: u64,
}

/// Counts of each window of one workspace.
///
/// The table keeps the counters of all windows that late requests may still be counted in. It may lose them
/// after a request for any other window and after a change of the window length. The guaranteed counts then
/// start from zero.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// All counts since the last crash: the upper limit of the table's count.
    ever: BTreeMap<u64, u64>,
    /// The guaranteed counts: the lower limit of the table's count.
    surely: BTreeMap<u64, u64>,
    length_ms: u64,
    /// The latest time that a node has read.
    read_ms: u64,
    beginnings: u32,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    request: Request,
    window: u64,
    closes_ms: u64,
    surely: u64,
    ever: u64,
    beginnings: u32,
}

impl Counted {
    fn count(&mut self, window: u64, length_ms: u64, read_ms: u64, closes_ms: u64) {
        let late_ms = self.read_ms.saturating_sub(closes_ms);
        let is_jump = late_ms >= JUMP_MS || length_ms != self.length_ms;
        if is_jump || self.read_ms >= closes_ms + Window::LATE_MAX.as_millis() as u64 {
            self.surely.clear();
            self.length_ms = length_ms;
            self.beginnings += 1;
        }
        if is_jump {
            self.read_ms = 0;
        }
        self.read_ms = self.read_ms.max(read_ms);
        *self.surely.entry(window).or_default() += 1;
        *self.ever.entry(window).or_default() += 1;
    }
}

impl Model {
    fn request(&mut self, request: Request) {
        let length_ms = u64::from(request.quota.window_seconds()) * 1_000;
        let shift_ms = WORKSPACES[request.workspace].1 % length_ms;
        let window = (request.read_ms + shift_ms) / length_ms;
        let closes_ms = (window + 1) * length_ms - shift_ms;
        let counted = &mut self.counted[request.workspace];
        counted.count(window, length_ms, request.read_ms, closes_ms);
        self.last = Some(request);
        self.expected = Some(Expected {
            request,
            window,
            closes_ms,
            surely: counted.surely[&window],
            ever: counted.ever[&window],
            beginnings: counted.beginnings,
        });
    }
}

/// Omits the state, because all cases start in the same one and only the steps help to analyze a failure.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let quota = Quota::new(2, 1).unwrap();
        let model = Self {
            now_ms: START_MS,
            ahead_ms: [0; NODES],
            quotas: [quota; WORKSPACES.len()],
            counted: Default::default(),
            last: None,
            expected: None,
        };
        Just(model).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        thread_local!(static STEP: BoxedStrategy<Step> = step().boxed());
        STEP.with(Clone::clone)
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.expected = None;
        match *step {
            Step::Wait(ms) => model.now_ms += ms,
            Step::Skew { node, ahead_ms } => model.ahead_ms[node] = ahead_ms,
            Step::Request { workspace, node, late_ms } => {
                let read_ms = model.now_ms.saturating_add_signed(model.ahead_ms[node]) - late_ms;
                model.request(Request { workspace, quota: model.quotas[workspace], read_ms });
            }
            Step::Replay => model.last.into_iter().for_each(|request| model.request(request)),
            Step::Quota { workspace, limit, seconds } => {
                model.quotas[workspace] = Quota::new(limit, seconds).unwrap();
            }
            Step::Crash => {
                for counted in &mut model.counted {
                    *counted = Counted { beginnings: counted.beginnings + 1, ..Counted::default() };
                }
            }
        }
        model
    }
}

pub(crate) struct WindowsMachine {
    table: WindowTable,
    /// The number of admitted requests by workspace, window and [`Expected::beginnings`].
    admitted: BTreeMap<(usize, u64, u32), u64>,
}

impl StateMachineTest for WindowsMachine {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self { table: WindowTable::default(), admitted: BTreeMap::new() }
    }

    fn apply(mut machine: Self, model: &Model, step: Step) -> Self {
        if let Step::Crash = step {
            machine.table = WindowTable::default();
        }
        if let Some(expected) = &model.expected {
            machine.count(expected);
        }
        machine
    }
}

impl WindowsMachine {
    fn count(&mut self, expected: &Expected) {
        let Expected { request: Request { workspace, quota, read_ms }, window: number, .. } = *expected;
        let id: WorkspaceId = WORKSPACES[workspace].0.parse().unwrap();
        let read = Timestamp::from_unix_ms(read_ms);
        let window = quota.window(&id, read);
        assert_eq!((window.number(), window.closes_at().unix_ms()), (number, expected.closes_ms));

        let count = at_once(self.table.count(&window)).unwrap();
        assert!((expected.surely..=expected.ever).contains(&count), "{count}, {expected:?}");

        let limit = u64::from(quota.limit());
        let answer = window.admit(count, read);
        assert_eq!(answer.is_ok(), count <= limit, "{count} of {limit}");
        let (Ok(standing) | Err(standing)) = answer;
        assert_eq!(standing.limit, quota.limit());
        assert_eq!(u64::from(standing.remaining), limit.saturating_sub(count));
        // At the reset time, the window has been over for less than a second.
        let retry_ms = read_ms + standing.reset_seconds * 1_000;
        assert!(standing.reset_seconds >= 1);
        assert!((expected.closes_ms..expected.closes_ms + 1_000).contains(&retry_ms), "{standing:?}");
        assert_ne!(quota.window(&id, Timestamp::from_unix_ms(retry_ms)).number(), number);

        if answer.is_ok() {
            let admitted = self.admitted.entry((workspace, number, expected.beginnings)).or_default();
            *admitted += 1;
            assert!(*admitted <= limit, "{admitted} requests of {limit}");
        }
    }
}

/// Generates steps with few workspaces, low limits and short windows, so that limits and boundaries are
/// reached often.
fn step() -> impl Strategy<Value = Step> {
    let workspace = || 0..WORKSPACES.len();
    let node = || 0..NODES;
    let wait = prop_oneof![6 => 0..200_u64, 3 => 200..1_500_u64, 1 => 1_500..10_000_u64];
    let ahead_ms = prop_oneof![6 => -900..=0_i64, 2 => -5_000..5_000_i64, 1 => -900_000_000..900_000_000_i64];
    let late_ms = prop_oneof![3 => Just(0), 1 => 0..1_000_u64, 1 => 0..10_000_u64];
    let seconds = prop_oneof![2 => 1..4_u32, 1 => 4..13_u32];
    prop_oneof![
        4 => wait.prop_map(Step::Wait),
        1 => (node(), ahead_ms).prop_map(|(node, ahead_ms)| Step::Skew { node, ahead_ms }),
        16 => (workspace(), node(), late_ms)
            .prop_map(|(workspace, node, late_ms)| Step::Request { workspace, node, late_ms }),
        3 => Just(Step::Replay),
        1 => (workspace(), 1..6_u32, seconds)
            .prop_map(|(workspace, limit, seconds)| Step::Quota { workspace, limit, seconds }),
        1 => Just(Step::Crash),
    ]
}
