//! Compares the gateway's replies with the host's transcripts.

use enrich_golden::{Kind, Server, Stores, scenarios};
use enrich_pingora::gateway::Gateway;

use crate::world::{Running, upstream};

#[test]
fn the_gateway_answers_as_the_host_does_byte_by_byte() {
    let scenarios = scenarios().unwrap();
    let Stores { service, keys, faults } = Stores::prepare(&scenarios);
    let body_timeout = Gateway::BODY_TIMEOUT;
    let running = Running::start(Gateway { service, upstream: upstream(), body_timeout });
    let server = Server { address: running.address, kind: Kind::Gateway, keys, faults: Some(faults) };
    let report = server.run(&scenarios);
    assert!(report.failed.is_empty() && report.passed.len() >= 30, "{report}");
    assert!(report.skipped.iter().all(|(_, why)| why.starts_with("host only: ")), "{report}");
}
