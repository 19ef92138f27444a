//! Groups the trace by lookup.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Balance, Price, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};

use crate::event::{Event, LogLine, PortCall, PortResult};
use crate::keys::KeyOf;
use crate::trace::Entry;

/// The events of one lookup.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LookupHistory {
    /// The lookup's node.
    pub node: usize,
    /// When it started.
    pub started_at: Duration,
    /// The host's port calls and their results, in order.
    pub port_events: Vec<PortEvent>,
    /// True if a workspace has its key.
    pub has_key: bool,
    /// True if this is a test key.
    pub is_test: bool,
    /// The key, if it is one of a workspace.
    pub key: Option<KeyOf>,
    /// The email that it resolved.
    pub email: Option<String>,
    /// When it ended.
    pub ended_at: Option<Duration>,
    /// The statuses in the host's log lines for the end of the lookup. Exactly one unless there is a bug or a
    /// crash.
    pub logged_statuses: Vec<u16>,
    /// The outcome in the last of these lines.
    pub outcome: Option<String>,
    /// True if the node crashed before the lookup ended.
    pub is_interrupted: bool,
    /// The credits of its committed spend at the end of the run.
    pub committed_credits: Option<i64>,
}

/// A port call or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortEvent {
    /// The host called a port.
    Called(PortCall),
    /// The call returned.
    Returned(PortResult),
}

impl LookupHistory {
    /// Returns whether the lookup has ended.
    pub fn has_ended(&self) -> bool {
        self.is_interrupted || !self.logged_statuses.is_empty()
    }

    /// Returns whether the host made this call.
    pub fn has_called(&self, call: PortCall) -> bool {
        self.port_events.contains(&PortEvent::Called(call))
    }

    /// Returns whether the host requested a spend.
    pub fn has_requested_spend(&self) -> bool {
        self.port_events.iter().any(PortEvent::requests_spend)
    }

    /// Returns whether it has a key of the clients' workspace.
    pub fn is_of_clients(&self) -> bool {
        self.key.is_some_and(KeyOf::is_of_clients)
    }

    /// Returns the other lookup that has paid for its receipt.
    pub fn paid_by(&self) -> Option<LookupId> {
        self.port_events.iter().find_map(|event| match event {
            PortEvent::Returned(PortResult::Settled(payer)) => *payer,
            _ => None,
        })
    }

    /// Returns what its result costs, 0 if it has none.
    pub fn cost(&self, price: Price) -> u64 {
        let cost = self.port_events.iter().find_map(|event| match event {
            PortEvent::Returned(PortResult::ProfileFound(true)) => Some(price.found),
            PortEvent::Returned(PortResult::ProfileFound(false)) => Some(price.not_found),
            _ => None,
        });
        cost.unwrap_or_default()
    }

    /// Returns whether its spend is committed at the end of the run.
    pub fn has_spent(&self) -> bool {
        self.committed_credits.is_some()
    }

    /// Returns whether the lookup went past its rate limit: it held credits or called the resolver.
    pub fn is_executed(&self) -> bool {
        self.has_called(PortCall::Hold) || self.has_called(PortCall::Resolve)
    }
}

impl PortEvent {
    /// Returns whether this is a call that settles with a spend.
    pub fn requests_spend(&self) -> bool {
        matches!(self, Self::Called(PortCall::Settle(Settlement::Spend(_))))
    }
}

/// Returns all lookups of a run, in the order of their ids.
pub(crate) fn lookup_histories(entries: &[Entry]) -> BTreeMap<LookupId, LookupHistory> {
    let mut histories = BTreeMap::<LookupId, LookupHistory>::new();
    for Entry { at, event } in entries {
        match event {
            Event::LookupStarted(node, lookup) => {
                let history = history(&mut histories, lookup);
                (history.node, history.started_at) = (*node, *at);
            }
            Event::PortCalled(lookup, call) => {
                history(&mut histories, lookup).port_events.push(PortEvent::Called(*call));
            }
            Event::PortReturned(lookup, result) => {
                let history = history(&mut histories, lookup);
                history.port_events.push(PortEvent::Returned(*result));
                if let PortResult::KeyFound { is_valid: true, key } = result {
                    history.has_key = true;
                    history.is_test = key.is_some_and(KeyOf::is_test);
                    history.key = *key;
                }
            }
            Event::Resolving(lookup, email) => {
                history(&mut histories, lookup).email = Some(email.clone());
            }
            Event::Logged(LogLine { lookup_end: Some((lookup, status)), outcome, .. }) => {
                let history = history(&mut histories, lookup);
                history.logged_statuses.push(*status);
                history.outcome.clone_from(outcome);
                history.ended_at = Some(*at);
            }
            Event::NodeCrashed(node) => {
                for history in histories.values_mut().filter(|history| history.node == *node) {
                    history.is_interrupted |= !history.has_ended();
                }
            }
            Event::CommittedSpends(spends) => {
                for (lookup, credits) in spends {
                    history(&mut histories, lookup).committed_credits = Some(*credits);
                }
            }
            _ => {}
        }
    }
    histories
}

fn history<'h>(
    histories: &'h mut BTreeMap<LookupId, LookupHistory>,
    lookup: &LookupId,
) -> &'h mut LookupHistory {
    histories.entry(*lookup).or_default()
}

/// Returns the price of the lookups of a run.
pub(crate) fn price(entries: &[Entry]) -> Price {
    let price = entries.iter().find_map(|entry| match entry.event {
        Event::NodeStarted { price, .. } => Some(price),
        _ => None,
    });
    price.unwrap_or_default()
}

/// Returns the latest balance of each workspace.
pub(crate) fn last_balances(entries: &[Entry]) -> BTreeMap<WorkspaceId, Balance> {
    let balances = entries.iter().filter_map(|entry| match &entry.event {
        Event::Balance(workspace, balance) => Some((workspace.clone(), *balance)),
        Event::SharedAccount(workspace, account) => Some((workspace.clone(), account.balance())),
        _ => None,
    });
    balances.collect()
}
