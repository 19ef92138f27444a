//! The simulated world: nodes, clients and the nemesis on one network and clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use enrich_lib::email::Email;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::Directory;
use enrich_middleware::{EmailHasher, HashedOptOuts};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::{Builder, Sim};

use crate::client::Client;
use crate::clock::{SKEW_MAX, timestamp};
use crate::event::Event;
use crate::faulty::Faults;
use crate::log::Log;
use crate::nemesis::Nemesis;
use crate::node::Node;
use crate::plan::{Plan, client_name, node_name};
use crate::run::Run;
use crate::servers;
use crate::stores::Stores;
use crate::story::{last_totals, stories};
use crate::trace::Trace;
use crate::vendor::{self, Vendor};
use crate::witness::Witness;

/// The start time of every run, since the Unix epoch.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// Time to wait after the last fault for nodes to restart.
const SETTLE: Duration = Duration::from_secs(1);

/// Time to wait after the last fault if the stores are on servers. Nodes reconnect, and those that failed to start try
/// again.
const SETTLE_ON_SERVERS: Duration = Duration::from_secs(3);

/// Longer than any run. A run that takes this long is stuck.
const RUN_TIME_MAX: Duration = Duration::from_secs(600);

/// A run in progress.
pub struct World<'p> {
    plan: &'p Plan,
    sim: Sim<'static>,
    nemesis: Nemesis,
    stores: Arc<Stores>,
    trace: Trace,
}

impl<'p> World<'p> {
    /// Runs the plan with all its requests and faults. After healing, sends one more request to each node and waits until
    /// all holds have ended.
    pub fn run(plan: &Plan) -> Run {
        let trace = Trace::default();
        let log = tracing::subscriber::set_default(Log(trace.clone()));
        let ended = World::new(plan, &trace).and_then(World::live);
        drop(log);
        Run::new(plan.clone(), trace.with(std::mem::take), ended.err().map(|error| error.to_string()))
    }

    fn new(plan: &'p Plan, trace: &Trace) -> turmoil::Result<Self> {
        let mut dice = StdRng::seed_from_u64(plan.seed);
        let mut sim = Builder::new()
            .rng_seed(dice.random())
            .epoch(UNIX_EPOCH + EPOCH)
            .tick_duration(plan.tick)
            .simulation_duration(RUN_TIME_MAX)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(50))
            .enable_random_order()
            .build();
        let stores = Arc::new(Stores::new(plan, trace, timestamp(sim.since_epoch()))?);
        let faults: Vec<_> =
            (0..plan.stores.nodes()).map(|_| Arc::new(Faults::new(dice.random(), trace.clone()))).collect();
        let opt_outs = Arc::new(opt_outs(plan)?);
        for (number, faults) in faults.iter().enumerate() {
            let clock = plan.clocks[number];
            let witness = Arc::new(Witness::new(number, clock, dice.random(), trace.clone()));
            let (stores, faults, trace) = (stores.clone(), faults.clone(), trace.clone());
            let (opt_outs, guards) = (opt_outs.clone(), plan.is_guarded.then(|| dice.random()));
            let node = Node { number, clock, stores, faults, witness, trace, opt_outs, guards };
            sim.host(node_name(number), move || node.clone().serve());
        }
        let people = Arc::new(people(plan)?);
        let vendor = Vendor {
            people,
            faults: Arc::new(Faults::new(dice.random(), trace.clone())),
            trace: trace.clone(),
        };
        let vendor_faults = vendor.faults.clone();
        sim.host(vendor::NAME, move || vendor.clone().serve());
        for number in 0..plan.clients.len() {
            sim.client(client_name(number), Client::new(plan, number).run(plan.clone(), trace.clone()));
        }
        for &server in stores.servers() {
            let stores = stores.clone();
            sim.host(server.name(), move || stores.clone().serve(server));
            for node in 0..plan.stores.nodes() {
                sim.set_link_max_message_latency(node_name(node), server.name(), servers::LATENCY_MAX);
            }
        }
        let nemesis = Nemesis::new(plan, faults, vendor_faults, stores.clone(), trace.clone());
        Ok(Self { plan, sim, nemesis, stores, trace: trace.clone() })
    }

    fn live(mut self) -> turmoil::Result {
        while !(self.step()? && self.nemesis.is_done()) {}
        self.trace.note_at(self.sim.elapsed(), Event::Healed);
        self.rest(if self.stores.servers().is_empty() { SETTLE } else { SETTLE_ON_SERVERS })?;

        let prober = Client::prober(self.plan).run(self.plan.clone(), self.trace.clone());
        self.sim.client("prober", prober);
        while !self.step()? {}

        let hold_ttl = Policy::default().hold_ttl;
        let silence_ends_at = self.sim.elapsed() + hold_ttl + SKEW_MAX + SETTLE;
        while !self.is_silent() && self.sim.elapsed() < silence_ends_at {
            self.rest(SETTLE)?;
        }
        self.stores.close(self.sim.elapsed());
        Ok(())
    }

    fn rest(&mut self, time: Duration) -> turmoil::Result {
        let until = self.sim.elapsed() + time;
        while self.sim.elapsed() < until {
            self.step()?;
        }
        Ok(())
    }

    /// Advances the simulation by one step. Returns whether all clients have finished.
    fn step(&mut self) -> turmoil::Result<bool> {
        self.nemesis.act(&mut self.sim);
        let is_finished = self.sim.step()?;
        self.stores.audit(self.sim.elapsed(), timestamp(self.sim.since_epoch()));
        Ok(is_finished)
    }

    /// Returns whether no lookup is in flight and no credits are held.
    fn is_silent(&self) -> bool {
        self.trace.with(|entries| {
            let is_over = stories(entries).values().all(|story| story.is_over());
            is_over && last_totals(entries).values().all(|balance| balance.held == 0)
        })
    }
}

/// Returns the people that the vendor has profiles of.
fn people(plan: &Plan) -> turmoil::Result<Directory> {
    let people = Directory::default();
    for (email, profile) in plan.people() {
        people.insert(&Email::parse(&email)?, profile);
    }
    Ok(people)
}

fn opt_outs(plan: &Plan) -> turmoil::Result<HashedOptOuts> {
    let hasher = EmailHasher::new([7; 32]);
    let mut hashes = Vec::new();
    for email in plan.opt_outs() {
        hashes.push(hasher.hash(&Email::parse(&email)?));
    }
    Ok(HashedOptOuts::new(hasher, hashes))
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plan", self.plan).finish_non_exhaustive()
    }
}
