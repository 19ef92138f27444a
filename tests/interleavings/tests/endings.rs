//! The ledger or its writer ends while spends are pending.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_interleavings::{Answer, START, Scene, explore, poll, write};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const SCHEDULES: usize = 1_500;

/// The last thread to finish drops the ledger. The writer finishes the jobs that are queued then.
#[test]
fn a_ledger_that_is_dropped_leaves_on_the_disk_what_was_told() {
    explore(2 * SCHEDULES, || {
        let (scene, work) = Scene::open();
        let writer = write(work);
        let spenders = [(1, true), (2, false), (3, false)].map(|(n, is_patient)| {
            let spender = scene.holding(n, 1);
            thread::spawn(move || if is_patient { spender.spend() } else { spender.spend_impatiently() })
        });
        let left = scene.leave();
        let ended = spenders.map(|spender| spender.join().unwrap());
        assert_eq!(ended[0].1, Answer::Told, "the patient one");
        writer.join().unwrap();
        left.check(&ended);
    });
}

/// The writer stops as if its executor had ended or it had panicked. Acknowledged spends stay, and no others are
/// charged.
#[test]
fn a_writer_that_stops_leaves_nobody_waiting() {
    explore(SCHEDULES, || {
        let (scene, mut work) = Scene::open();
        let spenders = [1, 2, 3].map(|n| {
            let spender = scene.holding(n, 1);
            thread::spawn(move || spender.spend())
        });
        let writer = thread::spawn(move || {
            for _ in 0..thread_rng().gen_range(1..8) {
                assert!(poll(work.as_mut()).is_pending(), "it ends with its ledger alone");
            }
        });
        let ended = spenders.map(|spender| spender.join().unwrap());
        assert!(ended.iter().all(|(_, answer)| *answer != Answer::GivenUp));
        writer.join().unwrap();
        assert!(block_on(scene.ledger.tick(START)).is_err(), "nobody tells the time any more");
        scene.leave().check(&ended);
    });
}
