//! Compares `enrich serve`, with its default stores, with the transcripts of `enrich-golden`.

use enrich_golden::{Kind, Operator, Report, Scenario, Server, scenarios};

#[test]
fn enrich_serve_matches_byte_by_byte() {
    let scenarios = scenarios().unwrap();
    let enrich = crate::enrich::Enrich::new();
    let data = enrich.data();
    let data = format!("ENRICH_DATA={}", data.display());
    let operator = ["env", &data, env!("CARGO_BIN_EXE_enrich")];
    let keys = Operator::new(operator).unwrap().prepare(&scenarios).unwrap();

    let serving = enrich.serve(&[]);
    let server = Server { address: serving.address(), kind: Kind::Host, keys, faults: None };
    let Report { passed, skipped, failed } = server.run(&scenarios);

    assert_eq!(failed, []);
    let with_faults = scenarios.iter().filter(|scenario| scenario.has_faults());
    let reason = "the ports of this server cannot be made to fail".to_owned();
    let expected: Vec<_> = with_faults.map(|Scenario { name, .. }| (name.clone(), reason.clone())).collect();
    assert_eq!((skipped, expected.len()), (expected, 8));
    assert_eq!(passed.len() + 8, scenarios.len());
}
