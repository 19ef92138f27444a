//! The simulation: nodes, clients and the nemesis on one network and clock.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use enrich_lib::lookup::Policy;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Builder;
use turmoil::Sim;

use crate::client::Client;
use crate::clock::{NodeClock, SKEW_MAX, timestamp};
use crate::event::Event;
use crate::gateway::Serve;
use crate::keys::KeyOf;
use crate::log_recorder::LogRecorder;
use crate::lookup_history::{last_balances, lookup_histories};
use crate::machine::Signals;
use crate::nemesis::{Nemesis, NodeControls};
use crate::node::NodeMachine;
use crate::operator::PlannedOperation;
use crate::own_database::CreditDatabase;
use crate::plan::Plan;
use crate::port_recorder::PortRecorder;
use crate::run::Run;
use crate::servers;
use crate::stores::Stores;
use crate::topology::{PROBER, VENDOR, client_name, node_name};
use crate::trace::Trace;
use crate::vendor::{SimulatedVendor, VendorFaults};
use crate::workspaces::KeyTexts;

/// The start time of every run, since the Unix epoch.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// Time to wait after the last fault for nodes to restart.
const RECOVERY_TIME: Duration = Duration::from_secs(1);

/// Time to wait after the last fault if the stores are on servers. Nodes reconnect, and those that failed to
/// start try again.
const RECOVERY_TIME_ON_SERVERS: Duration = Duration::from_secs(3);

/// How long a node may take to stop: the delay, the drain and the close, and the timeout of connections whose
/// clients are gone.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// Longer than any run. A run that takes this long is stuck.
const RUN_TIME_MAX: Duration = Duration::from_secs(8 * 3_600);

/// The parts of a run.
pub(crate) struct Setup {
    pub(crate) plan: Plan,
    pub(crate) gateway: Rc<dyn Serve>,
    pub(crate) keys: KeyTexts,
    pub(crate) database: Option<Arc<dyn CreditDatabase>>,
}

/// A run in progress.
pub(crate) struct Simulation {
    plan: Plan,
    keys: KeyTexts,
    sim: Sim<'static>,
    nemesis: Nemesis,
    /// The remaining changes by operators, the first one last.
    operations: Vec<PlannedOperation>,
    stores: Arc<Stores>,
    trace: Trace,
}

impl Simulation {
    pub(crate) fn run(setup: Setup) -> Run {
        let (trace, plan) = (Trace::default(), setup.plan.clone());
        let log = tracing::subscriber::set_default(LogRecorder(trace.clone()));
        let result = Simulation::new(setup, &trace).and_then(Simulation::execute);
        drop(log);
        Run::new(plan, trace.with(std::mem::take), result.err().map(|error| error.to_string()))
    }

    fn new(setup: Setup, trace: &Trace) -> turmoil::Result<Self> {
        let Setup { plan, gateway, keys, database } = setup;
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let mut sim = turmoil::Builder::new()
            .rng_seed(rng.random())
            .epoch(UNIX_EPOCH + EPOCH)
            .tick_duration(plan.tick)
            .simulation_duration(RUN_TIME_MAX)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(50))
            // Room for the connections of a crowd.
            .tcp_capacity(1_024)
            .enable_random_order()
            .build();
        let stores = Arc::new(Stores::new(&plan, database, trace, timestamp(sim.since_epoch()))?);
        let mut controls = Vec::new();
        for (number, clock) in plan.clocks.iter().copied().map(NodeClock::new).enumerate() {
            let signals = Arc::<Signals>::default();
            controls.push(NodeControls { clock: clock.clone(), signals: signals.clone() });
            let (recorder_seed, of) = (rng.random(), KeyOf::ALL.map(|key| (keys.digest(key), key)));
            let recorder = PortRecorder::new(number, clock.clone(), recorder_seed, trace.clone(), of);
            let node = NodeMachine {
                number,
                clock,
                stores: stores.clone(),
                recorder: Arc::new(recorder),
                trace: trace.clone(),
                has_middleware: plan.has_middleware,
                vendor_http: plan.vendor_http,
                price: plan.price,
                seed: rng.random(),
                signals,
                gateway: gateway.clone(),
                keys,
            };
            sim.host(node_name(number), move || node.clone().serve());
        }
        let vendor_faults = Arc::new(VendorFaults::new(rng.random()));
        let vendor = SimulatedVendor::new(&plan, vendor_faults.clone(), trace.clone());
        sim.host(VENDOR, move || vendor.clone().serve());
        let shared_plan = Arc::new(plan.clone());
        for number in 0..plan.clients.len() {
            sim.client(
                client_name(number),
                Client::new(&plan, number, keys).run(shared_plan.clone(), trace.clone()),
            );
        }
        for &server in stores.servers() {
            let stores = stores.clone();
            sim.host(server.name(), move || stores.clone().serve(server));
            for node in 0..plan.stores.nodes() {
                sim.set_link_max_message_latency(node_name(node), server.name(), servers::LATENCY_MAX);
            }
        }
        let nemesis = Nemesis::new(&plan, controls, vendor_faults, stores.clone(), trace.clone());
        let mut operations = plan.operations.clone();
        operations.sort_by_key(|planned| std::cmp::Reverse(planned.at));
        Ok(Self { plan, keys, sim, nemesis, operations, stores, trace: trace.clone() })
    }

    fn execute(mut self) -> turmoil::Result {
        while !(self.step()? && self.nemesis.is_done() && self.operations.is_empty()) {}
        self.nemesis.heal();
        while !(self.step()? && self.nemesis.is_done()) {}
        self.trace.record_at(self.sim.elapsed(), Event::Healed);
        self.advance(if self.stores.is_alone() { RECOVERY_TIME } else { RECOVERY_TIME_ON_SERVERS })?;

        let prober =
            Client::prober(&self.plan, self.keys).run(Arc::new(self.plan.clone()), self.trace.clone());
        self.sim.client(PROBER, prober);
        while !self.step()? {}

        let hold_ttl = Policy::default().hold_ttl;
        let deadline = self.sim.elapsed() + hold_ttl + SKEW_MAX + RECOVERY_TIME;
        while !self.is_idle() && self.sim.elapsed() < deadline {
            self.advance(RECOVERY_TIME)?;
        }
        self.stop_nodes()?;
        let closing = self.stores.close(self.sim.elapsed());
        Builder::new_current_thread().build()?.block_on(closing)
    }

    /// Stops all nodes in order. Their rows are then complete.
    fn stop_nodes(&mut self) -> turmoil::Result {
        let deadline = self.sim.elapsed() + STOP_TIME_MAX;
        self.nemesis.stop_nodes();
        let nodes = 0..self.plan.stores.nodes();
        while nodes.clone().any(|node| self.sim.is_host_running(node_name(node))) {
            if self.sim.elapsed() > deadline {
                return Err("the nodes did not stop".into());
            }
            self.step()?;
        }
        Ok(())
    }

    /// Advances the simulation by `time`.
    fn advance(&mut self, time: Duration) -> turmoil::Result {
        let until = self.sim.elapsed() + time;
        while self.sim.elapsed() < until {
            self.step()?;
        }
        Ok(())
    }

    /// Advances the simulation by one step. Returns whether all clients have finished.
    fn step(&mut self) -> turmoil::Result<bool> {
        self.nemesis.act(&mut self.sim);
        self.operate()?;
        let is_finished = self.sim.step()?;
        self.stores.audit(self.sim.elapsed());
        Ok(is_finished)
    }

    /// Makes the changes of operators that are due, unless the disk fails.
    fn operate(&mut self) -> turmoil::Result {
        let now = self.sim.elapsed();
        while self.operations.last().is_some_and(|planned| planned.at <= now)
            && !self.nemesis.can_lose_changes()
            && let Some(planned) = self.operations.pop()
        {
            let time = timestamp(self.sim.since_epoch());
            let operating = self.stores.operate(&planned.operation, now, time);
            Builder::new_current_thread().build()?.block_on(operating)?;
        }
        Ok(())
    }

    /// Returns whether no lookup is in flight and no credits are held.
    fn is_idle(&self) -> bool {
        self.trace.with(|entries| {
            let have_ended = lookup_histories(entries).values().all(|history| history.has_ended());
            have_ended && last_balances(entries).values().all(|balance| balance.held == 0)
        })
    }
}
