//! The ledger or its writer ends while spends are pending.

use enrich_interleavings::{LedgerFixture, START, SpendOutcome, explore, poll, spawn_writer};
use enrich_store::{Clocks, Ledger as _};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const SCHEDULES: usize = 1_000;

/// The last thread to finish drops the ledger. The writer finishes the jobs that are queued then.
#[test]
fn dropped_ledger_keeps_acknowledged_spends_on_disk() {
    explore(2 * SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        let writer = spawn_writer(work);
        let lookups = [(1, true), (2, false), (3, false)].map(|(n, waits)| {
            let lookup = fixture.lookup_with_hold(n, 1);
            thread::spawn(move || if waits { lookup.spend() } else { lookup.spend_with_timeout() })
        });
        let data = fixture.drop_ledger();
        let results = lookups.map(|lookup| lookup.join().unwrap());
        assert_eq!(results[0].1, SpendOutcome::Acknowledged, "the spend without a timeout");
        writer.join().unwrap();
        data.check(&results);
    });
}

/// The writer stops as if its executor had ended or it had panicked. Acknowledged spends stay, and no others
/// are charged.
#[test]
fn stopped_writer_ends_all_pending_spends() {
    explore(SCHEDULES, || {
        let (fixture, mut work) = LedgerFixture::open();
        let lookups = [1, 2, 3].map(|n| {
            let lookup = fixture.lookup_with_hold(n, 1);
            thread::spawn(move || lookup.spend())
        });
        let writer = thread::spawn(move || {
            for _ in 0..thread_rng().gen_range(1..8) {
                assert!(poll(work.as_mut()).is_pending(), "the writer ends only with its ledger");
            }
        });
        let results = lookups.map(|lookup| lookup.join().unwrap());
        assert!(results.iter().all(|(_, outcome)| *outcome != SpendOutcome::Abandoned));
        writer.join().unwrap();
        assert!(block_on(fixture.ledger.tick(Clocks::simulated(START))).is_err(), "the writer has stopped");
        fixture.drop_ledger().check(&results);
    });
}
