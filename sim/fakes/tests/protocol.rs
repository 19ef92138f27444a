//! Explores every order of the statements of two lookups on two nodes, which share the credits of one
//! workspace.
//!
//! A statement arrives late or never, its reply is lost, a hold expires, a node or the server crashes. The
//! statements are those of the fake, which the store contract compares with a real server. What a settlement
//! does is invisible until it is committed, and its hold is locked meanwhile.

use std::collections::HashSet;

use enrich_fakes::postgres::{Database, HoldRequest, Lookup, SettleRequest, Workspace};

const WORKSPACE: &str = "demo";

const LOOKUPS: [Lookup; 2] = [[1; 16], [2; 16]];

/// What a node does about a spend without a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Releases the hold, then reads whether there is a spend.
    ReleaseThenRead,
    /// The mistake: only reads.
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Started,
    HoldSent,
    Held,
    SettleSent,
    /// The spend may be committed.
    InDoubt,
    ReleaseSent,
    Released,
    /// 200.
    Spent,
    /// 402 or 500.
    Failed,
    /// The node has crashed. Nothing was promised.
    Crashed,
}

/// A statement on its way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Hold,
    Settle,
    /// A settlement that is being executed.
    Settling,
    Release,
}

#[derive(Clone, Debug)]
struct State {
    database: Database,
    /// What a crash of the server leaves.
    durable: Database,
    phases: [Phase; 2],
    statements: Vec<(usize, Statement)>,
    /// The server may still crash. Once is enough.
    may_crash: bool,
}

impl State {
    fn new(credits: i64) -> Self {
        let mut database = Database::default();
        database.create_workspace(Workspace {
            id: WORKSPACE.to_owned(),
            granted: credits,
            ..Workspace::default()
        });
        let durable = database.clone();
        Self { database, durable, phases: [Phase::Started; 2], statements: Vec::new(), may_crash: true }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    fn send(&mut self, lookup: usize, statement: Statement, phase: Phase) {
        self.phases[lookup] = phase;
        self.statements.push((lookup, statement));
        self.statements.sort_by_key(|(lookup, statement)| (*lookup, *statement as u8));
    }

    fn is_locked(&self, lookup: usize) -> bool {
        self.statements.contains(&(lookup, Statement::Settling))
    }

    fn settle(&mut self, lookup: usize, is_release: bool) -> bool {
        let request = SettleRequest {
            lookup: LOOKUPS[lookup],
            workspace: WORKSPACE.to_owned(),
            credits: 1,
            group: (0, 0),
            receipt: None,
        };
        // A lookup that has spent and was held again changes nothing.
        let ended = self.database.settle(&[request], is_release, 0).unwrap_or_default();
        self.durable = self.database.clone(); // a synchronous commit
        ended.ended == 1
    }

    /// Returns every state that can follow.
    fn next(&self, protocol: Protocol) -> Vec<Self> {
        let mut next = Vec::new();
        for lookup in 0..2 {
            self.continue_lookup(lookup, protocol, &mut next);
        }
        for at in 0..self.statements.len() {
            self.execute(at, &mut next);
        }
        for (lookup, id) in LOOKUPS.iter().enumerate() {
            if self.database.holds().contains_key(id) && !self.is_locked(lookup) {
                let due = self.database.holds()[id].expires_at;
                next.push(self.with(|state| {
                    state.database.expire(due - 1, 1, due);
                }));
            }
        }
        if !self.database.settlements().is_empty() {
            next.push(self.with(|state| {
                state.database.return_credits(i64::MIN, 9);
                state.database.count_spends(i64::MIN, 9);
            }));
        }
        if self.may_crash {
            next.push(self.with(|state| {
                state.may_crash = false;
                state.database = state.durable.clone();
                // A pooler may keep statements that the server has not received.
                state.statements.retain(|(_, statement)| *statement != Statement::Settling);
            }));
        }
        next
    }

    /// Adds what a lookup or its node can do next.
    fn continue_lookup(&self, lookup: usize, protocol: Protocol, next: &mut Vec<Self>) {
        let mut then = |change: &dyn Fn(&mut Self)| next.push(self.with(change));
        match self.phases[lookup] {
            Phase::Started => then(&|state| state.send(lookup, Statement::Hold, Phase::HoldSent)),
            Phase::HoldSent => then(&|state| state.phases[lookup] = Phase::Failed), // the timeout
            Phase::Held => then(&|state| state.send(lookup, Statement::Settle, Phase::SettleSent)),
            Phase::SettleSent => then(&|state| state.phases[lookup] = Phase::InDoubt), // the timeout
            Phase::InDoubt if protocol == Protocol::ReadOnly => {
                then(&|state| state.phases[lookup] = Phase::Released);
            }
            Phase::InDoubt => then(&|state| state.send(lookup, Statement::Release, Phase::ReleaseSent)),
            Phase::ReleaseSent => {}
            Phase::Released => then(&|state| {
                let is_spent = state.database.spends().contains_key(&LOOKUPS[lookup]);
                state.phases[lookup] = if is_spent { Phase::Spent } else { Phase::Failed };
            }),
            Phase::Spent | Phase::Failed | Phase::Crashed => return,
        }
        then(&|state| state.phases[lookup] = Phase::Crashed);
    }

    /// Adds what can become of a statement.
    fn execute(&self, at: usize, next: &mut Vec<Self>) {
        let (lookup, statement) = self.statements[at];
        let without = |change: &dyn Fn(&mut Self)| {
            self.with(|state| {
                state.statements.remove(at);
                change(state);
            })
        };
        next.push(without(&|_| {})); // it is lost
        match statement {
            Statement::Hold => {
                let executed = without(&|state| {
                    let request = HoldRequest {
                        lookup: LOOKUPS[lookup],
                        workspace: WORKSPACE.to_owned(),
                        credits: 1,
                        total: 1,
                        ttl_ms: 10 + lookup as i64,
                        receipt: None,
                    };
                    state.database.hold(&[request], 0).expect("the lookup has no hold");
                });
                if self.phases[lookup] == Phase::HoldSent {
                    next.push(executed.with(|state| {
                        let is_held = state.database.holds().contains_key(&LOOKUPS[lookup]);
                        state.phases[lookup] = if is_held { Phase::Held } else { Phase::Failed };
                    }));
                }
                next.push(executed); // without a reply
            }
            Statement::Settle => next.push(self.with(|state| state.statements[at].1 = Statement::Settling)),
            Statement::Settling => {
                let mut is_spent = false;
                let committed = self.with(|state| {
                    state.statements.remove(at);
                    is_spent = state.settle(lookup, false);
                });
                if self.phases[lookup] == Phase::SettleSent {
                    next.push(committed.with(|state| {
                        state.phases[lookup] = if is_spent { Phase::Spent } else { Phase::InDoubt };
                    }));
                }
                next.push(committed); // without a reply
            }
            Statement::Release if self.is_locked(lookup) => {} // it waits
            Statement::Release => {
                let executed = without(&|state| {
                    state.settle(lookup, true);
                });
                if self.phases[lookup] == Phase::ReleaseSent {
                    next.push(executed.with(|state| state.phases[lookup] = Phase::Released));
                    next.push(executed.with(|state| state.phases[lookup] = Phase::InDoubt)); // no reply: it is repeated
                }
            }
        }
    }

    /// Returns a description of what is wrong in this state.
    fn violation(&self) -> Option<String> {
        for database in [&self.database, &self.durable] {
            let workspace = &database.workspaces()[0];
            let held: i64 = database.holds().values().map(|hold| hold.credits).sum();
            let spent: i64 = database.spends().values().map(|spend| spend.credits).sum();
            if workspace.used > workspace.granted || workspace.used != held + spent + database.rest(1) {
                return Some(format!("the account does not add up: {database:?}"));
            }
        }
        self.phases.iter().zip(&LOOKUPS).find_map(|(phase, id)| match phase {
            Phase::Spent if !self.durable.spends().contains_key(id) => Some("a 200 is not billed".to_owned()),
            Phase::Failed if self.database.spends().contains_key(id) => Some("a 500 is billed".to_owned()),
            _ => None,
        })
    }
}

/// Visits every state that can be reached. Returns their number, or the first violation.
fn explore(credits: i64, protocol: Protocol) -> Result<usize, String> {
    let mut waiting = vec![State::new(credits)];
    let mut seen = HashSet::new();
    while let Some(state) = waiting.pop() {
        if let Some(violation) = state.violation() {
            return Err(format!("{violation}: {state:?}"));
        }
        for next in state.next(protocol) {
            if seen.insert(format!("{next:?}")) {
                waiting.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn every_order_keeps_conservation_and_bills_no_500() {
    for credits in [1, 2] {
        let states = explore(credits, Protocol::ReleaseThenRead).unwrap();
        assert!(states > 1_000, "{states}");
    }
}

#[test]
fn reading_without_a_release_is_found_to_be_wrong() {
    let violation = explore(2, Protocol::ReadOnly).unwrap_err();
    assert!(violation.starts_with("a 500 is billed"), "{violation}");
}
