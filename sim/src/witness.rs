//! The outermost layer of a node's ports: records the port calls of each lookup and their results.
//!
//! Most calls do not identify their lookup. This layer can still attribute them because the chain makes its next call right
//! after the previous one returns, before any other task runs on the node.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use enrich_host::Arrivals;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Arrival, LookupId, ProfileUrl};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::Clock;
use crate::event::{Answer, Event, Question};
use crate::trace::Trace;

/// Tracks the lookups of one node.
#[derive(Debug)]
pub(crate) struct Witness {
    node: usize,
    clock: Clock,
    trace: Trace,
    dice: Mutex<StdRng>,
    /// The lookup that is currently running.
    current: Mutex<LookupId>,
}

impl Witness {
    pub(crate) fn new(node: usize, clock: Clock, seed: u64, trace: Trace) -> Self {
        let (dice, nobody) = (StdRng::seed_from_u64(seed), LookupId::from_bytes([0; 16]));
        Self { node, clock, trace, dice: Mutex::new(dice), current: Mutex::new(nobody) }
    }

    async fn follow<T>(
        &self,
        question: Question,
        call: impl Future<Output = Result<T, PortError>>,
        answer: impl FnOnce(&T) -> Answer,
    ) -> Result<T, PortError> {
        let lookup = *self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.trace.note(Event::Asks(lookup, question));
        let answered = call.await;
        self.trace.note(Event::Told(lookup, answered.as_ref().map_or(Answer::Failed, answer)));
        self.turn_to(lookup);
        answered
    }

    fn turn_to(&self, lookup: LookupId) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = lookup;
    }
}

/// Uses the node's clock, and randomness from the seed.
impl Arrivals for Witness {
    fn arrive(&self) -> Arrival {
        let random = self.dice.lock().unwrap_or_else(PoisonError::into_inner).random();
        let arrival = Arrival::new(self.clock.now(), random);
        self.trace.note(Event::Arrived(self.node, arrival.id));
        self.turn_to(arrival.id);
        arrival
    }
}

/// A port of one node that records its calls.
pub(crate) struct Witnessed<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) witness: Arc<Witness>,
}

#[async_trait]
impl Keys for Witnessed<dyn Keys> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let answer = |found: &Option<Workspace>| Answer::Key(found.is_some());
        self.witness.follow(Question::Key, self.port.find(key), answer).await
    }
}

#[async_trait]
impl Windows for Witnessed<dyn Windows> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let limit = window.admit(0, self.witness.clock.now()).map_or_else(|s| s.limit, |s| s.limit);
        let answer = |&count: &u64| Answer::Count(count, window.closes_at(), limit);
        self.witness.follow(Question::Count, self.port.count(window), answer).await
    }
}

#[async_trait]
impl Credits for Witnessed<dyn Credits> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.witness.follow(Question::Hold, self.port.hold(hold), |&held| Answer::Hold(held)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let question = Question::Settle(settlement);
        self.witness.follow(question, self.port.settle(hold, settlement), |()| Answer::Settled).await
    }
}

#[async_trait]
impl Resolver for Witnessed<dyn Resolver> {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let answer = |found: &Option<ProfileUrl>| Answer::Person(found.is_some());
        self.witness.follow(Question::Person, self.port.find(query), answer).await
    }
}
