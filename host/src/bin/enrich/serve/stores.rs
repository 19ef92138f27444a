//! The stores of a data directory, as `serve` uses them.

use std::sync::Arc;
use std::time::Duration;

use enrich_host::SystemArrivals;
use enrich_host::patience::PersistentCredits;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::WindowTable;
use enrich_lib::ports::Resolver;
use enrich_sqlite::{DataDir, Ledger, People, StoreError, on_a_thread};
use tracing::warn;

use crate::config::Config;
use crate::failure::Failure;

/// How often the stores take over what other processes changed: several times within the second that is promised.
const TICK: Duration = Duration::from_millis(250);

pub struct Stores {
    ledger: Arc<Ledger>,
    pub people: Arc<People>,
}

impl Stores {
    pub fn open(dir: &DataDir, config: &Config) -> Result<Self, Failure> {
        let ledger = Arc::new(Ledger::open(dir, SystemArrivals::now(), on_a_thread)?);
        let people = Arc::new(People::open(dir, config.people.confidence_min, rand::random())?);
        Ok(Self { ledger, people })
    }

    pub fn service(&self, config: &Config, resolver: Arc<dyn Resolver>) -> Service {
        let policy = Policy { price: config.price(), emails: config.email_policy(), ..Policy::default() };
        Service {
            policy: Arc::new(policy),
            keys: self.ledger.clone(),
            windows: Arc::new(WindowTable::default()),
            credits: Arc::new(PersistentCredits {
                credits: self.ledger.clone(),
                deadline: PersistentCredits::DEADLINE,
            }),
            resolver,
        }
    }

    /// A tick that fails is told once, and made up for by the next one that does not.
    pub async fn keep_current(&self) {
        let mut is_failing = false;
        let mut interval = tokio::time::interval(TICK);
        loop {
            interval.tick().await;
            let ticked = self.tick().await;
            if let (Err(error), false) = (&ticked, is_failing) {
                warn!(%error, "the stores are not current");
            }
            is_failing = ticked.is_err();
        }
    }

    pub async fn tick(&self) -> Result<(), StoreError> {
        let (ledger, people) = (self.ledger.tick(SystemArrivals::now()).await, self.people.refresh());
        ledger.and(people)
    }
}
