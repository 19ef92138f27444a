//! The state of the clients' workspace over time, as operators have changed it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Event, PortCall, PortResult};
use crate::operator::Operation;
use crate::trace::Entry;

/// How long a change takes until it applies on every node.
pub(super) const CHANGE_TIME: Duration = Duration::from_secs(1);

/// How long a lookup may query vendors after it has read the opt-outs.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(10);

/// The limit until an operator sets one.
const INITIAL: u32 = 0;

/// A value over time.
#[derive(Debug)]
pub(super) struct Timeline<T>(Vec<(Duration, T)>);

impl<T: Copy + PartialEq> Timeline<T> {
    fn new(value: T) -> Self {
        Self(vec![(Duration::ZERO, value)])
    }

    fn set(&mut self, at: Duration, value: T) {
        self.0.push((at, value));
    }

    /// Returns whether a node may use `value` at some moment from `from` to `until`: it was in force then, or
    /// up to [`CHANGE_TIME`] before.
    pub(super) fn allows(&self, value: T, from: Duration, until: Duration) -> bool {
        let from = from.saturating_sub(CHANGE_TIME);
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        self.0.iter().zip(ends).any(|((at, of), end)| *of == value && *at <= until && end >= from)
    }
}

/// What operators can change.
#[derive(Debug)]
pub(super) struct State {
    /// Whether the key of the clients' workspace is active.
    pub(super) is_active: Timeline<bool>,
    /// The limit of requests in a window.
    pub(super) limit: Timeline<u32>,
    /// Whether people opted out during the run, by email.
    pub(super) opted_out: BTreeMap<String, Timeline<bool>>,
    /// When credits were withdrawn.
    withdrawn_at: Vec<Duration>,
}

impl State {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let (mut is_enabled, mut is_suspended, mut is_revoked) = (true, false, false);
        let mut state = Self {
            is_active: Timeline::new(true),
            limit: Timeline::new(INITIAL),
            opted_out: BTreeMap::new(),
            withdrawn_at: Vec::new(),
        };
        for Entry { at, event } in entries {
            match event {
                Event::KeyRevoked => is_revoked = true,
                Event::Operated(Operation::SetKeyEnabled(enabled)) => is_enabled = *enabled,
                Event::Operated(Operation::SetSuspended(suspended)) => is_suspended = *suspended,
                Event::Operated(Operation::Withdraw(_)) => state.withdrawn_at.push(*at),
                Event::Operated(Operation::SetLimit(limit)) => state.limit.set(*at, *limit),
                Event::Operated(Operation::SetOptedOut(email, is_opted_out)) => {
                    let timeline =
                        state.opted_out.entry(email.clone()).or_insert_with(|| Timeline::new(false));
                    timeline.set(*at, *is_opted_out);
                }
                _ => continue,
            }
            state.is_active.set(*at, is_enabled && !is_suspended && !is_revoked);
        }
        state
    }

    /// Returns whether a lookup from `from` to `until` can have held credits that were withdrawn: during it, or up to
    /// [`CHANGE_TIME`] before.
    pub(super) fn may_have_withdrawn(&self, from: Duration, until: Duration) -> bool {
        self.withdrawn_at.iter().any(|at| from <= *at + CHANGE_TIME && *at <= until)
    }
}

/// Checks that each node accepts a key, and uses a limit, that was in force up to [`CHANGE_TIME`] before, and
/// that the vendor receives no request for a person who opted out before its lookup.
pub(super) fn check(entries: &[Entry], state: &State) -> Result<(), String> {
    let (mut called_at, mut uses_key) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let Entry { at, event } = entry;
        let is_possible = match event {
            Event::PortCalled(lookup, PortCall::FindKey) => {
                called_at.insert(*lookup, *at);
                true
            }
            Event::PortReturned(lookup, PortResult::KeyFound { is_valid, is_revocable: true }) => {
                let from = called_at.get(lookup).copied().unwrap_or_default();
                uses_key.insert(*lookup, from);
                state.is_active.allows(*is_valid, from, *at)
            }
            Event::PortReturned(lookup, PortResult::Counted { limit, .. }) => match uses_key.get(lookup) {
                Some(from) => [*limit, INITIAL].iter().any(|limit| state.limit.allows(*limit, *from, *at)),
                None => true,
            },
            Event::VendorCalled(email, _) => state.opted_out.get(email).is_none_or(|is_opted_out| {
                is_opted_out.allows(false, at.saturating_sub(RESOLVE_TIME_MAX), *at)
            }),
            _ => true,
        };
        if !is_possible {
            return Err(format!("not the state that operators have set: {entry}"));
        }
    }
    Ok(())
}
