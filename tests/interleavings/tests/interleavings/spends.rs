//! Spends of a ledger, and the writer that makes them durable.

use enrich_interleavings::{
    GRANTED, LedgerFixture, START, SpendOutcome, SpendResult, TestLookup, expiry, explore, spawn_writer,
};
use enrich_lib::credit::HoldOutcome;
use enrich_lib::model::Timestamp;
use enrich_sqlite::Ledger;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

const SCHEDULES: usize = 1_000;

fn spend(lookup: TestLookup) -> JoinHandle<SpendResult> {
    thread::spawn(move || lookup.spend())
}

fn spend_with_timeout(lookup: TestLookup) -> JoinHandle<SpendResult> {
    thread::spawn(move || lookup.spend_with_timeout())
}

/// Spends, and retries once if it stopped waiting, as a lookup with time left does.
fn spend_with_retry(lookup: TestLookup) -> JoinHandle<SpendResult> {
    thread::spawn(move || match lookup.spend_with_timeout() {
        (_, SpendOutcome::Abandoned) => lookup.spend(),
        results => results,
    })
}

fn all<const N: usize>(spends: [JoinHandle<SpendResult>; N]) -> [SpendResult; N] {
    spends.map(|spend| spend.join().unwrap())
}

/// Runs `spends` while the ledger ticks at each of `times`. Then checks that the ledger matches the results.
fn with_ticks_at<const N: usize>(
    times: [Timestamp; N],
    spends: impl FnOnce(&LedgerFixture) -> Vec<SpendResult>,
) {
    let (fixture, work) = LedgerFixture::open();
    let writer = spawn_writer(work);
    let ticks = fixture.tick_at(times);
    let results = spends(&fixture);
    ticks.join().unwrap();
    fixture.close(writer, &results);
}

#[test]
fn waiting_spends_are_acknowledged() {
    explore(SCHEDULES, || {
        with_ticks_at([START], |fixture| {
            let spends = [1, 2, 3, 4].map(|n| {
                let lookup = fixture.lookup(n, 1);
                thread::spawn(move || (lookup.hold() == HoldOutcome::Granted).then(|| lookup.spend()))
            });
            let results: Vec<_> = spends.into_iter().filter_map(|spend| spend.join().unwrap()).collect();
            assert_eq!(results.len() as u64, GRANTED, "one per credit");
            assert!(results.iter().all(|(_, outcome)| *outcome == SpendOutcome::Acknowledged), "{results:?}");
            results
        });
    });
}

#[test]
fn retried_spend_is_charged_at_most_once() {
    explore(3 * SCHEDULES, || {
        with_ticks_at([START], |fixture| {
            let results = all([
                spend_with_retry(fixture.lookup_with_hold(1, 2)),
                spend_with_retry(fixture.lookup_with_hold(2, 1)),
            ]);
            assert!(results.iter().all(|(_, outcome)| *outcome != SpendOutcome::Abandoned));
            results.into()
        });
    });
}

#[test]
fn abandoned_spend_is_written() {
    explore(SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        let lookups = [1, 2].map(|n| fixture.lookup_with_hold(n, 1));
        let results = all(lookups.clone().map(spend_with_timeout));
        assert!(results.iter().all(|(_, outcome)| *outcome == SpendOutcome::Abandoned));
        let writer = spawn_writer(work);
        let results = all(lookups.map(spend));
        assert!(results.iter().all(|(_, outcome)| *outcome == SpendOutcome::Acknowledged), "{results:?}");
        fixture.close(writer, &results);
    });
}

/// A tick withdraws spends that are overdue, while the writer takes them.
#[test]
fn overdue_spend_is_withdrawn_or_written() {
    explore(SCHEDULES, || {
        with_ticks_at([START + Ledger::QUEUE_TIMEOUT], |fixture| {
            all([spend(fixture.lookup_with_hold(1, 2)), spend_with_timeout(fixture.lookup_with_hold(2, 1))])
                .into()
        });
    });
}

#[test]
fn concurrent_spends_of_one_lookup_charge_once() {
    explore(SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        let writer = spawn_writer(work);
        let lookup = fixture.lookup_with_hold(1, 2);
        let [first, second, third] = all([(); 3].map(|()| spend(lookup.clone())));
        assert!([&first, &second, &third].iter().all(|(_, outcome)| *outcome == SpendOutcome::Acknowledged));
        drop(lookup);
        fixture.close(writer, &[first]);
    });
}

#[test]
fn either_spend_or_release_wins() {
    explore(SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        let writer = spawn_writer(work);
        let lookup = fixture.lookup_with_hold(1, 2);
        let release = thread::spawn({
            let lookup = lookup.clone();
            move || lookup.release()
        });
        let waits = thread_rng().gen_range(0..2) == 0;
        let results = [if waits { lookup.spend() } else { lookup.spend_with_timeout() }];
        let is_released = release.join().unwrap();
        match results[0].1 {
            SpendOutcome::Abandoned => {}
            outcome => assert_eq!(is_released, outcome != SpendOutcome::Acknowledged),
        }
        drop(lookup);
        fixture.close(writer, &results);
    });
}

#[test]
fn expiring_hold_is_spent_or_returned() {
    explore(SCHEDULES, || {
        with_ticks_at([expiry(), expiry() + Ledger::QUEUE_TIMEOUT], |fixture| {
            let spends = [(1, true), (2, false), (3, false)]
                .map(|(n, waits)| (fixture.lookup(n, 1), waits))
                .map(|(lookup, waits)| {
                    thread::spawn(move || match lookup.try_hold() {
                        Some(HoldOutcome::Granted) if waits => Some(lookup.spend()),
                        Some(HoldOutcome::Granted) => Some(lookup.spend_with_timeout()),
                        _ => None,
                    })
                });
            spends.into_iter().filter_map(|spend| spend.join().unwrap()).collect()
        });
    });
}
