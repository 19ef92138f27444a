//! Faults of the disk of a node on SQLite, and the reply that each requires. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_sim::{DiskFault, Event, FaultKind, LogLine, Plan, RequestKind, Run, World, seeds};

const SEEDS: u64 = 5;

/// When the fault starts: the node is open, and has received no request.
const START: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// More operations than the lookups of a test need.
const STEPS: u32 = 30;

/// Runs two lookups, the second one after the fault, which lasts for three seconds.
fn run_with(seed: u64, fault: DiskFault) -> Run {
    run_with_lookups(seed, fault, 1)
}

/// Runs this number of lookups during the fault, which lasts for three seconds, and one after it.
fn run_with_lookups(seed: u64, fault: DiskFault, during: usize) -> Run {
    let mut plan = Plan::empty(seed).fault(START, 3 * SECOND, FaultKind::Disk(0, fault));
    for _ in 0..=during {
        plan = plan.request(RequestKind::Known);
    }
    let (after, during) = plan.clients[0].split_last_mut().expect("a lookup");
    for request in during {
        request.pause = 2 * START;
        request.timeout = 4 * SECOND;
    }
    after.pause = 5 * SECOND;
    World::with_plan(plan).run().check()
}

fn has_failed(run: &Run) -> bool {
    run.trace.iter().any(|entry| matches!(entry.event, Event::NodeFailed(..)))
}

/// The power is cut at each operation of two lookups.
#[test]
fn power_cut_keeps_each_spend_that_was_answered() {
    let (mut cuts, mut answered) = (0, 0);
    for steps in 0..STEPS {
        let run = run_with_lookups(u64::from(steps), DiskFault::PowerCut(steps), 2);
        let was_cut = run.trace.iter().any(|entry| matches!(entry.event, Event::PowerCut(_)));
        let statuses = run.statuses();
        assert_eq!(statuses[2], Some(200), "after {steps} steps");
        cuts += u32::from(was_cut);
        answered += u32::from(was_cut && statuses[0] == Some(200));
    }
    assert!(cuts > answered && answered > 0, "{cuts} cuts, of which {answered} after the first answer");
}

#[test]
fn failed_sync_ends_the_node_without_an_answer() {
    for seed in seeds(SEEDS) {
        let run = run_with(seed, DiskFault::Syncs);
        assert_eq!(run.statuses()[..2], [None, Some(200)]);
        assert!(has_failed(&run) && run.lookups()[0].is_interrupted);
    }
}

/// The log that the second start reads is not on the disk.
#[test]
fn power_cut_after_a_sync_that_lost_its_data_keeps_each_later_spend() {
    let mut cuts = 0;
    for seed in seeds(SEEDS) {
        let lost = FaultKind::Disk(0, DiskFault::LostSyncs);
        let cut = FaultKind::Disk(0, DiskFault::PowerCut(0));
        let mut plan = Plan::empty(seed).fault(START, 3 * SECOND, lost).fault(7 * SECOND, 10 * SECOND, cut);
        for pause in [2 * START, SECOND, SECOND, SECOND] {
            plan = plan.request(RequestKind::Known);
            let request = plan.clients[0].last_mut().expect("a request");
            (request.pause, request.timeout) = (pause, 4 * SECOND);
        }
        let run = World::with_plan(plan).run().check();
        assert_eq!(run.statuses()[..4], [None, Some(200), None, Some(200)]);
        assert!(has_failed(&run));
        cuts += u64::from(run.trace.iter().any(|entry| matches!(entry.event, Event::PowerCut(_))));
    }
    assert_eq!(cuts, SEEDS);
}

/// The disk is full twice, and a lookup fails each time.
#[test]
fn each_outage_of_the_disk_is_reported() {
    let full = || FaultKind::Disk(0, DiskFault::Full);
    let outages = [START..3 * SECOND, 7 * SECOND..12 * SECOND];
    for seed in seeds(SEEDS) {
        let faults = outages.clone().into_iter();
        let mut plan = faults.fold(Plan::empty(seed), |plan, at| plan.fault(at.start, at.end, full()));
        for pause in [2 * START, 15 * SECOND / 2, 6 * SECOND] {
            plan = plan.request(RequestKind::Known);
            plan.clients[0].last_mut().expect("a request").pause = pause;
        }
        let run = World::with_plan(plan).run().check();
        assert_eq!(run.statuses()[..3], [Some(500), Some(500), Some(200)]);
        let is_report = |line: &LogLine| line.text.contains("the stores cannot be refreshed");
        for outage in &outages {
            let during = run.trace.iter().filter(|entry| outage.contains(&entry.at));
            let reports = during.filter(|it| matches!(&it.event, Event::Logged(line) if is_report(line)));
            // Ticks that write nothing succeed in between.
            assert!((1..=3).contains(&reports.count()), "{outage:?}");
        }
    }
}

/// If a crash would recover the spend, it is in doubt until the disk works again.
#[test]
fn spend_that_cannot_be_written_gives_500_without_charge() {
    let ended = (0..4).map(|before| {
        let run = run_with(u64::from(before), DiskFault::Writes(before));
        assert_unpaid_500(&run);
        run.lookups()[0].ended_at
    });
    let last = ended.max().flatten();
    assert!(last.is_some_and(|at| at >= 3 * SECOND), "all ended until {last:?}");
}

fn assert_unpaid_500(run: &Run) {
    assert_eq!(run.statuses()[..2], [Some(500), Some(200)]);
    assert_eq!((run.balance().spent, run.balance().held), (1, 0));
    assert!(!has_failed(run));
}
