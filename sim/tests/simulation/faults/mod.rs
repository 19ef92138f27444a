//! Tables of single faults, and the replies that the specification or the design requires for each. Every run
//! also checks all invariants.

mod middleware;
mod one_node;
mod outcomes;
mod two_nodes;

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use enrich_sim::{
    Event, FaultKind, HttpVersion, KeyOf, Link, Operation, Peer, Plan, RequestKind, Run, Server, VendorFault,
    World, seeds,
};

use self::RequestKind::Known;

const CLIENT: Link = Link { peer: Peer::Client(0), node: 0 };
const VENDOR: Link = Link { peer: Peer::Vendor, node: 0 };
const REDIS: Link = Link { peer: Peer::Server(Server::Redis), node: 0 };
const POSTGRES: Link = Link { peer: Peer::Server(Server::Postgres), node: 0 };

/// A fault, and the seconds at which it starts and ends.
type Fault = (f64, f64, FaultKind);

/// The requests of clients beside some faults.
struct Case {
    plan: fn(u64) -> Plan,
    faults: Vec<Fault>,
    /// The status of each request, or 0 if it has no reply.
    statuses: &'static [u16],
    spent: u64,
    /// The second at which an operator revokes the clients' keys.
    revoked_at: Option<f64>,
    /// The seconds from a request to its reply.
    time: Option<(usize, Range<f64>)>,
    /// How many requests of clients the vendor receives.
    vendor_requests: Option<RangeInclusive<usize>>,
    /// Whether the process of a node ends with an error.
    fails: bool,
}

fn case(plan: fn(u64) -> Plan, faults: &[Fault], statuses: &'static [u16], spent: u64) -> Case {
    let (faults, revoked_at, time, vendor_requests) = (faults.into(), None, None, None);
    Case { plan, faults, statuses, spent, revoked_at, time, vendor_requests, fails: false }
}

impl Case {
    fn with_revocation(self, second: f64) -> Self {
        Self { revoked_at: Some(second), ..self }
    }

    fn with_time(self, request: usize, seconds: Range<f64>) -> Self {
        Self { time: Some((request, seconds)), ..self }
    }

    fn with_vendor_requests(self, requests: RangeInclusive<usize>) -> Self {
        Self { vendor_requests: Some(requests), ..self }
    }

    fn failing(self) -> Self {
        Self { fails: true, ..self }
    }

    /// Runs the case with a few seeds, so that the result does not depend on the latency of single calls.
    fn check(self) {
        let Self { plan, faults, statuses, spent, revoked_at, time, vendor_requests, fails } = self;
        for seed in seeds(3) {
            let mut plan = faults.iter().fold(plan(seed), |plan, (from, to, kind)| {
                plan.fault(Duration::from_secs_f64(*from), Duration::from_secs_f64(*to), kind.clone())
            });
            if let Some(at) = revoked_at.map(Duration::from_secs_f64) {
                plan = plan.operation(at, Operation::RevokeKey(KeyOf::Clients));
                plan = plan.operation(at, Operation::RevokeKey(KeyOf::ClientsOther));
            }
            let probes = plan.clocks.len();
            let run = World::with_plan(plan).run().check();
            let has = format!("seed {seed}: {faults:?}");
            let replies: Vec<_> = run.statuses().into_iter().map(Option::unwrap_or_default).collect();
            assert_eq!(replies[..statuses.len()], *statuses, "{has}");
            assert_eq!((run.balance().spent, run.balance().held), (spent, 0), "{has}");
            let count = |is: fn(&Event) -> bool| run.trace.iter().filter(|entry| is(&entry.event)).count();
            assert_eq!(count(|event| matches!(event, Event::NodeFailed(..))) > 0, fails, "{has}");
            let requests = count(|event| matches!(event, Event::VendorCalled(..))).saturating_sub(probes);
            let is_expected = vendor_requests.as_ref().is_none_or(|expected| expected.contains(&requests));
            assert!(is_expected, "{requests} vendor requests, {has}");
            if let Some((request, seconds)) = &time {
                let taken = reply_time(&run, *request);
                assert!(seconds.contains(&taken), "{taken} s for request {request}, {has}");
            }
        }
    }
}

/// Returns the seconds between request `n` and its reply.
fn reply_time(run: &Run, n: usize) -> f64 {
    let at = |is: &dyn Fn(&Event) -> bool| run.trace.iter().find(|entry| is(&entry.event)).map(|it| it.at);
    let sent = at(&|event| matches!(event, Event::RequestSent(sent) if sent.number == n));
    let received = at(&|event| matches!(event, Event::ReplyReceived(number, _) if *number == n));
    (received.expect("a reply") - sent.expect("a request")).as_secs_f64()
}

fn on_sqlite(seed: u64) -> Plan {
    Plan::empty(seed)
}

fn on_servers(seed: u64) -> Plan {
    Plan::empty_on_servers(seed, 2)
}

/// Adds requests: the node, the seconds since the previous one, and the seconds for which the client waits.
fn requests(plan: Plan, kind: RequestKind, requests: &[(usize, f64, f64)]) -> Plan {
    requests.iter().fold(plan, |plan, (node, pause, timeout)| {
        let timeout = Duration::from_secs_f64(*timeout);
        let mut plan = plan.request_to(*node, kind, HttpVersion::Http1, timeout);
        plan.clients[0].last_mut().expect("a request").pause = Duration::from_secs_f64(*pause);
        plan
    })
}

/// Adds requests for known persons by a patient client.
fn known(plan: Plan, nodes: &[(usize, f64)]) -> Plan {
    let patient: Vec<_> = nodes.iter().map(|(node, pause)| (*node, *pause, 30.0)).collect();
    requests(plan, Known, &patient)
}

/// Adds requests that share a connection.
fn on_one_connection(plan: Plan, http: HttpVersion, kinds: &[RequestKind]) -> Plan {
    let mut plan =
        kinds.iter().fold(plan, |plan, kind| plan.request_to(0, *kind, http, Duration::from_secs(30)));
    plan.clients[0].iter_mut().for_each(|request| request.reuses_connection = true);
    plan
}

fn vendor(fault: VendorFault) -> FaultKind {
    FaultKind::Vendor(fault, 1.0)
}

fn slow(seconds: u64) -> FaultKind {
    vendor(VendorFault::Delay(Duration::from_secs(seconds)))
}
