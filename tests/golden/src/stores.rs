//! In-memory stores with the scenarios' data.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::Policy;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::LookupId;
use enrich_lib::ports::{Credits, Keys as KeysPort, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::receipt::ReceiptKey;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Window, Workspace};

use crate::keys::Keys;
use crate::scenario::{Port, Scenario};

/// In-memory stores with the data of scenarios.
#[derive(Debug)]
pub struct Stores {
    /// A lookup service on these stores.
    pub service: Service,
    /// The API keys.
    pub keys: Keys,
    /// Makes the stores fail.
    pub faults: Arc<Faults>,
}

/// The ports that currently fail.
#[derive(Debug, Default)]
pub struct Faults(Mutex<BTreeSet<Port>>);

impl Stores {
    /// Creates stores with the data of all `scenarios`. People who opted out are left out of the directory.
    pub fn prepare(scenarios: &[Scenario]) -> Self {
        let (key_table, accounts, people) =
            (KeyTable::default(), AccountTable::default(), Directory::default());
        let mut keys = Keys::default();
        // Predictable bytes (SplitMix64): test keys are no secret.
        let mut state = 0_u64;
        let mut next_byte = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (mixed >> 56) as u8
        };
        for Scenario { name, given, .. } in scenarios {
            for workspace in &given.workspaces {
                accounts.grant(&workspace.id, workspace.credits).ok();
            }
            for given_key in &given.keys {
                let key = ApiKey::generate(&mut next_byte);
                let key = if given_key.is_test { key.into_test() } else { key };
                keys.insert(name, &given_key.name, key.reveal());
                let workspace = given.workspaces.iter().find(|w| w.id == given_key.workspace);
                if let (Some(workspace), false) = (workspace, given_key.revoked) {
                    let workspace = Workspace::new(workspace.id.clone(), workspace.quota);
                    key_table.insert(key.digest(), workspace.with_test(given_key.is_test));
                }
            }
            let form = |email: &str| Email::parse(email).map(|email| email.opt_out_form()).ok();
            let opted_out: Vec<_> = given.opted_out.iter().map(|email| form(email)).collect();
            for person in &given.people {
                if let (Ok(email), false) =
                    (Email::parse(&person.email), opted_out.contains(&form(&person.email)))
                {
                    people.insert(&email, person.profile.clone());
                }
            }
        }
        let faults = Arc::new(Faults::default());
        let mut service = Service::new(
            Arc::new(Faulty { inner: key_table, faults: faults.clone() }),
            Arc::new(Faulty { inner: WindowTable::default(), faults: faults.clone() }),
            Arc::new(Faulty { inner: accounts, faults: faults.clone() }),
            Arc::new(Faulty { inner: people, faults: faults.clone() }),
        );
        service.policy = Arc::new(Policy::default().with_receipts(ReceiptKey::new([7; 16])));
        Self { service, keys, faults }
    }
}

impl Faults {
    /// Makes `port` fail, in addition to ports that already fail.
    pub(crate) fn fail(&self, port: Port) {
        self.failing().insert(port);
    }

    /// Makes all ports work again.
    pub(crate) fn work(&self) {
        self.failing().clear();
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, BTreeSet<Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, port: Port) -> Result<(), PortError> {
        if self.failing().contains(&port) { Err(PortError::new("injected fault")) } else { Ok(()) }
    }
}

/// A port that fails while [`Faults`] contains it.
struct Faulty<T> {
    inner: T,
    faults: Arc<Faults>,
}

#[async_trait]
impl KeysPort for Faulty<KeyTable> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.faults.check(Port::Keys)?;
        self.inner.find(key).await
    }
}

#[async_trait]
impl Windows for Faulty<WindowTable> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.faults.check(Port::Windows)?;
        self.inner.count(window).await
    }
}

#[async_trait]
impl Credits for Faulty<AccountTable> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.faults.check(Port::Holds)?;
        self.inner.hold(hold).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.faults.check(Port::Settlements)?;
        self.inner.settle(hold, settlement).await
    }

    fn keeps_receipts(&self) -> bool {
        true
    }
}

#[async_trait]
impl Resolver for Faulty<Directory> {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.faults.check(Port::Resolver)?;
        self.inner.find(query).await
    }
}
