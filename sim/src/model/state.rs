//! The state of the workspaces over time, as operators have changed it.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;

use crate::clock::SKEW_MAX;
use crate::event::{Event, PortCall, PortResult};
use crate::keys::KeyOf;
use crate::operator::Operation;
use crate::trace::Entry;
use crate::workspaces::{client_workspace, workspace_of};

/// How long a change takes until it applies on every node.
pub(super) const CHANGE_TIME: Duration = Duration::from_secs(1);

/// A value over time.
#[derive(Debug)]
pub(super) struct Timeline<T>(Vec<(Duration, T)>);

impl<T: Clone + PartialEq> Timeline<T> {
    fn new(value: T) -> Self {
        Self(vec![(Duration::ZERO, value)])
    }

    fn set(&mut self, at: Duration, value: T) {
        self.0.push((at, value));
    }

    /// Returns the value at the start.
    pub(super) fn first(&self) -> &T {
        &self.0[0].1
    }

    /// Returns whether a node may use `value` at some moment from `from` to `until`: it was in force then, or
    /// up to [`CHANGE_TIME`] before.
    pub(super) fn allows(&self, value: &T, from: Duration, until: Duration) -> bool {
        self.any(from, until, |of, _, _| of == value)
    }

    /// Returns whether a value is accepted that a node may use, with the times from which and until which it may.
    fn any(&self, from: Duration, until: Duration, is: impl Fn(&T, Duration, Duration) -> bool) -> bool {
        let from = from.saturating_sub(CHANGE_TIME);
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        let mut values = self.0.iter().zip(ends).filter(|((at, _), end)| *at <= until && *end >= from);
        values.any(|((at, of), end)| is(of, from.max(*at), until.min(end)))
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    exists: bool,
    is_disabled: bool,
    is_revoked: bool,
    is_suspended: bool,
    ends_at: Option<Duration>,
}

/// The state that operators can change.
#[derive(Debug)]
pub(super) struct State {
    /// All keys. Operators change those of the clients' workspace.
    keys: BTreeMap<KeyOf, Timeline<Key>>,
    /// The limit of requests in a window, of each workspace.
    limits: BTreeMap<WorkspaceId, Timeline<u32>>,
    /// Whether people opted out during the run, by email.
    pub(super) opted_out: BTreeMap<String, Timeline<bool>>,
    /// The names of imported profiles, by email.
    pub(super) imported: BTreeMap<String, Timeline<Option<String>>>,
    /// Whether a node has the other sources.
    pub(super) has_other_sources: BTreeMap<usize, Timeline<bool>>,
    /// When credits were withdrawn.
    withdrawn_at: Vec<Duration>,
    /// Whether the clock of a node was wrong by more than [`SKEW_MAX`].
    has_wrong_clock: bool,
}

impl State {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut keys = KeyOf::ALL.map(|of| (of, Key::default()));
        keys.iter_mut().for_each(|(of, key)| key.exists = !of.is_of_clients() || KeyOf::INITIAL.contains(of));
        let mut state = Self {
            keys: keys.map(|(of, key)| (of, Timeline::new(key))).into(),
            limits: BTreeMap::new(),
            opted_out: BTreeMap::new(),
            imported: BTreeMap::new(),
            has_other_sources: BTreeMap::new(),
            withdrawn_at: Vec::new(),
            has_wrong_clock: false,
        };
        let mut keys = BTreeMap::from(keys);
        for Entry { at, event } in entries {
            match event {
                Event::WorkspaceCreated(id, quota) => {
                    state.limits.insert(id.clone(), Timeline::new(quota.limit()));
                }
                Event::PersonImported(email, profile) => {
                    state.imported.insert(email.clone(), Timeline::new(Some(profile.clone())));
                }
                Event::ClockSet(_) => state.has_wrong_clock = true,
                Event::SourcesLoaded(node, is_other) => {
                    let timeline = state.has_other_sources.entry(*node);
                    timeline.or_insert_with(|| Timeline::new(*is_other)).set(*at, *is_other);
                }
                Event::Operated(operation) => {
                    state.apply(operation, *at);
                    for (of, key) in keys.iter_mut().filter(|(of, _)| of.is_of_clients()) {
                        key.apply(*of, operation, *at);
                        state.keys.entry(*of).and_modify(|timeline| timeline.set(*at, *key));
                    }
                }
                _ => {}
            }
        }
        state
    }

    /// Adds a change, unless it is one of a key.
    fn apply(&mut self, operation: &Operation, at: Duration) {
        match operation {
            Operation::Withdraw(_) => self.withdrawn_at.push(at),
            Operation::SetLimit(limit) => {
                self.limits.entry(client_workspace()).and_modify(|timeline| timeline.set(at, *limit));
            }
            Operation::SetOptedOut(email, is_opted_out) => {
                let timeline = self.opted_out.entry(email.clone());
                timeline.or_insert_with(|| Timeline::new(false)).set(at, *is_opted_out);
                // An opt-out deletes the record of the person, and its withdrawal does not add it again.
                if *is_opted_out {
                    self.import(email, None, at);
                }
            }
            Operation::Import { email, profile, replaces } => {
                let others: Vec<_> = self.imported.keys().filter(|other| *other != email).cloned().collect();
                others.iter().filter(|_| *replaces).for_each(|other| self.import(other, None, at));
                let has_opted_out =
                    self.opted_out.get(email).and_then(|it| it.0.last()).is_some_and(|(_, is)| *is);
                self.import(email, Some(profile.clone()).filter(|_| !has_opted_out), at);
            }
            _ => {}
        }
    }

    fn import(&mut self, email: &str, profile: Option<String>, at: Duration) {
        self.imported.entry(email.to_owned()).or_insert_with(|| Timeline::new(None)).set(at, profile);
    }

    /// Returns whether a node may find, or not, the workspace of a key from `from` to `until`.
    fn allows_key(&self, of: KeyOf, is_valid: bool, from: Duration, until: Duration) -> bool {
        self.keys.get(&of).is_some_and(|timeline| {
            timeline.any(from, until, |key, from, until| {
                let Key { exists, is_disabled, is_revoked, is_suspended, ends_at } = *key;
                let is_open = exists && !is_disabled && !is_revoked && !is_suspended;
                let is_before =
                    ends_at.is_none_or(|ends_at| self.has_wrong_clock || from <= ends_at + SKEW_MAX);
                let is_after =
                    ends_at.is_some_and(|ends_at| self.has_wrong_clock || until + SKEW_MAX >= ends_at);
                if is_valid { is_open && is_before } else { !is_open || is_after }
            })
        })
    }

    /// Returns whether a lookup from `from` to `until` can have held credits that were withdrawn: during it, or up to
    /// [`CHANGE_TIME`] before.
    pub(super) fn may_have_withdrawn(&self, from: Duration, until: Duration) -> bool {
        self.withdrawn_at.iter().any(|at| from <= *at + CHANGE_TIME && *at <= until)
    }
}

impl Key {
    /// Applies a change of the key `of`, or of its workspace.
    fn apply(&mut self, of: KeyOf, operation: &Operation, at: Duration) {
        match operation {
            Operation::CreateKey(created) => self.exists |= *created == of,
            Operation::RotateKey(old, grace) if *old == of => {
                let ends_at = at + *grace;
                self.ends_at = Some(self.ends_at.map_or(ends_at, |earlier| earlier.min(ends_at)));
            }
            Operation::RotateKey(old, _) => self.exists |= old.replacement() == of,
            Operation::SetKeyEnabled(changed, is_enabled) if *changed == of => self.is_disabled = !is_enabled,
            Operation::RevokeKey(revoked) => self.is_revoked |= *revoked == of,
            Operation::Delete => self.is_revoked = true,
            Operation::SetSuspended(is_suspended) => self.is_suspended = *is_suspended,
            _ => {}
        }
    }
}

/// Checks that each node accepts a key, and uses a limit, that was in force up to [`CHANGE_TIME`] before, that the
/// vendor receives no request for a person who opted out before its lookup, and that lookups with test keys have
/// windows of their own and use neither credits nor people.
pub(super) fn check(entries: &[Entry], state: &State) -> Result<(), String> {
    let (mut called_at, mut keys, mut resolving) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let Entry { at, event } = entry;
        let is_possible = match event {
            Event::PortCalled(lookup, PortCall::FindKey) => {
                called_at.insert(*lookup, *at);
                true
            }
            Event::PortCalled(lookup, PortCall::Hold | PortCall::Resolve) => {
                !keys.get(lookup).is_some_and(|(of, _): &(KeyOf, _)| of.is_test())
            }
            Event::PortReturned(lookup, PortResult::KeyFound { is_valid, key: Some(of) }) => {
                let from = called_at.get(lookup).copied().unwrap_or_default();
                keys.insert(*lookup, (*of, from));
                state.allows_key(*of, *is_valid, from, *at)
            }
            Event::PortReturned(lookup, PortResult::Counted { limit, is_test, .. }) => match keys.get(lookup)
            {
                Some((of, from)) => {
                    let limits = state.limits.get(&workspace_of(*of));
                    limits.is_some_and(|limits| limits.allows(limit, *from, *at)) && *is_test == of.is_test()
                }
                None => false,
            },
            Event::Resolving(lookup, email) => {
                resolving.insert(*lookup, (email, *at));
                true
            }
            Event::PortReturned(lookup, PortResult::ProfileFound(_) | PortResult::Failed) => {
                resolving.remove(lookup);
                true
            }
            Event::VendorCalled(email, _) => state.opted_out.get(email).is_none_or(|is_opted_out| {
                let since = resolving.values().filter(|(of, _)| *of == email).map(|(_, at)| *at).min();
                is_opted_out.allows(&false, since.unwrap_or(*at), *at)
            }),
            _ => true,
        };
        if !is_possible {
            return Err(format!("not the state that operators have set: {entry}"));
        }
    }
    Ok(())
}
