//! A world: the plan of a run, and what runs on its nodes.

use std::rc::Rc;
use std::sync::Arc;

use enrich_lib::model::WorkspaceId;

use crate::gateway::{Foreign, Host, Ports};
use crate::listener::Listener;
use crate::own_database::CreditDatabase;
use crate::plan::Plan;
use crate::run::Run;
use crate::seeds;
use crate::simulation::{Setup, Simulation};
use crate::workspaces::{KeyTexts, initial_workspaces};

/// A simulated world. By default, its nodes run the program's own server on this project's stores.
///
/// ```
/// use enrich_sim::World;
///
/// let run = World::new(17).run().check();
/// assert!(!run.lookups().is_empty());
/// ```
#[derive(derive_more::Debug)]
#[debug("World {{ plan: {:?}, .. }}", _0.plan)]
#[must_use = "call `run`"]
pub struct World(Setup);

impl World {
    /// Creates a world whose requests and faults are drawn from a seed.
    pub fn new(seed: u64) -> Self {
        Self::with_plan(Plan::from_seed(seed))
    }

    /// Creates a world with the requests and faults of a plan.
    pub fn with_plan(plan: Plan) -> Self {
        Self(Setup { plan, gateway: Rc::new(Host), keys: KeyTexts::default(), database: None })
    }

    /// Runs a gateway's own stack on each node, instead of the program's server.
    ///
    /// `serve` is called at each start of a node: the first one, after each crash and after each shutdown. It
    /// serves the connections of the listener until [`Ports::shutdown`] completes, then completes the lookups
    /// in flight and returns. An error ends the run.
    pub fn with_service<F, S>(self, serve: F) -> Self
    where
        F: Fn(Listener, Ports) -> S + 'static,
        S: Future<Output = turmoil::Result> + 'static,
    {
        Self(Setup { gateway: Rc::new(Foreign(serve)), ..self.0 })
    }

    /// Sets the API keys of the clients, for a gateway with another
    /// [`KeyFormat`](enrich_lib::key::KeyFormat), which must return
    /// [`KeyDigest::from_token`](enrich_lib::key::KeyDigest::from_token). `key` returns the key with this number.
    pub fn with_keys(self, key: fn(u8) -> String) -> Self {
        Self(Setup { keys: KeyTexts::of_gateway(key), ..self.0 })
    }

    /// Adds a database for a gateway's own store of credits, on the machine of PostgreSQL, whose faults it
    /// shares. It must contain the [credits](Self::credits) of all workspaces. Nodes must share their stores:
    /// see [`Plan::from_seed_on_servers`].
    ///
    /// The gateway [records](Ports::record) its port `Credits`.
    pub fn with_database(self, database: Arc<dyn CreditDatabase>) -> Self {
        Self(Setup { database: Some(database), ..self.0 })
    }

    /// Returns the initial credits of each workspace.
    pub fn credits(&self) -> Vec<(WorkspaceId, u64)> {
        initial_workspaces(&self.0.plan).into_iter().map(|it| (it.workspace.id, it.credits)).collect()
    }

    /// Runs the plan with all its requests and faults. After healing, sends one more request to each node and
    /// waits until all holds have ended.
    pub fn run(self) -> Run {
        let Setup { plan, gateway, keys, database } = self.0;
        let repeated_parts = seeds::parts();
        let plan = repeated_parts.as_deref().map_or_else(|| plan.clone(), |parts| plan.only(parts));
        // A database of a gateway contains what the first run has left.
        let can_repeat = repeated_parts.is_none() && database.is_none();
        let run = Simulation::run(Setup { plan, gateway: gateway.clone(), keys, database });
        let repeat =
            move |plan| Simulation::run(Setup { plan, gateway: gateway.clone(), keys, database: None });
        if can_repeat { run.with_repeat(repeat) } else { run }
    }
}
