//! Port wrappers that record calls and inject faults.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use tokio::sync::watch;

/// A port call of a lookup, in the order in which a lookup makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    FindKey,
    Count,
    Hold,
    FindPerson,
    Settle,
}

/// How a port responds to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Works,
    Fails,
    /// Fails the next call, then works again.
    FailsOnce,
    /// Executes the next call but returns an error, then works again.
    LosesAnAnswer,
    /// Does not return until the mood changes.
    Hangs,
}

/// The error message of a failing port. It must not appear in any reply.
pub const FAULT: &str = "vault-7 burned down";

/// A wrapper around all ports of the server. Forwards calls unless a test sets another [`Mood`].
pub struct Tap {
    ports: Service,
    moods: watch::Sender<BTreeMap<Step, Mood>>,
    asked: Mutex<Vec<Step>>,
}

impl Tap {
    pub(super) fn new(ports: Service) -> Self {
        Self { ports, moods: watch::Sender::default(), asked: Mutex::default() }
    }

    pub fn set(&self, step: Step, mood: Mood) {
        self.moods.send_modify(|moods| {
            moods.insert(step, mood);
        });
    }

    pub fn all_work(&self) {
        self.moods.send_modify(BTreeMap::clear);
    }

    /// Returns the calls since the previous `take_asked`, in order.
    pub fn take_asked(&self) -> Vec<Step> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Returns the number of `step` calls since the last [`Tap::take_asked`].
    pub fn count(&self, step: Step) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == step).count()
    }

    async fn pass<T>(
        &self,
        step: Step,
        answer: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        self.asked.lock().unwrap().push(step);
        let mut moods = self.moods.subscribe();
        let mood_of = |moods: &BTreeMap<_, _>| moods.get(&step).copied().unwrap_or_default();
        let mood = moods.wait_for(|moods| mood_of(moods) != Mood::Hangs).await.map(|moods| mood_of(&moods));
        match mood.unwrap() {
            Mood::Works | Mood::Hangs => answer.await,
            Mood::Fails => Err(PortError::new(FAULT)),
            Mood::FailsOnce => {
                self.set(step, Mood::Works);
                Err(PortError::new(FAULT))
            }
            Mood::LosesAnAnswer => {
                self.set(step, Mood::Works);
                answer.await.and(Err(PortError::new(FAULT)))
            }
        }
    }
}

#[async_trait]
impl Keys for Tap {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.pass(Step::FindKey, self.ports.keys.find(key)).await
    }
}

#[async_trait]
impl Windows for Tap {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.pass(Step::Count, self.ports.windows.count(window)).await
    }
}

#[async_trait]
impl Credits for Tap {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.pass(Step::Hold, self.ports.credits.hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.pass(Step::Settle, self.ports.credits.settle(hold, settlement)).await
    }
}

#[async_trait]
impl Resolver for Tap {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        self.pass(Step::FindPerson, self.ports.resolver.find(query)).await
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("moods", &self.moods).field("asked", &self.asked).finish_non_exhaustive()
    }
}
