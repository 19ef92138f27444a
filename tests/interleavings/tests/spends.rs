//! Spends of a ledger, and the writer that makes them durable.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_interleavings::{Answer, Ended, GRANTED, START, Scene, Spender, end, explore, write};
use enrich_lib::credit::{Account, HoldOutcome};
use enrich_lib::model::Timestamp;
use shuttle::thread::{self, JoinHandle};

const SCHEDULES: usize = 1_500;

fn spend(spender: Spender) -> JoinHandle<Ended> {
    thread::spawn(move || spender.spend())
}

fn spend_impatiently(spender: Spender) -> JoinHandle<Ended> {
    thread::spawn(move || spender.spend_impatiently())
}

/// Spends, and retries once if it stopped waiting, as a lookup with time left does.
fn try_again(spender: Spender) -> JoinHandle<Ended> {
    thread::spawn(move || match spender.spend_impatiently() {
        (_, Answer::GivenUp) => spender.spend(),
        ended => ended,
    })
}

fn all<const N: usize>(spends: [JoinHandle<Ended>; N]) -> [Ended; N] {
    spends.map(|spend| spend.join().unwrap())
}

/// Runs `spends` while the ledger ticks at each of `moments`. Then checks that the ledger matches the results.
fn while_time_passes<const N: usize>(moments: [Timestamp; N], spends: impl FnOnce(&Scene) -> Vec<Ended>) {
    let (scene, work) = Scene::open();
    let writer = write(work);
    let clock = scene.clock(moments);
    let ended = spends(&scene);
    clock.join().unwrap();
    scene.close(writer, &ended);
}

#[test]
fn who_waits_for_a_spend_is_told() {
    explore(SCHEDULES, || {
        while_time_passes([START], |scene| {
            let spends = [1, 2, 3, 4].map(|n| {
                let spender = scene.spender(n, 1);
                thread::spawn(move || (spender.hold() == HoldOutcome::Granted).then(|| spender.spend()))
            });
            let ended: Vec<_> = spends.into_iter().filter_map(|spend| spend.join().unwrap()).collect();
            assert_eq!(ended.len() as u64, GRANTED, "as many as there are credits");
            assert!(ended.iter().all(|(_, answer)| *answer == Answer::Told), "{ended:?}");
            ended
        });
    });
}

#[test]
fn a_spend_that_is_given_up_is_not_billed() {
    explore(3 * SCHEDULES, || {
        while_time_passes([START], |scene| {
            let ended = all([spend_impatiently(scene.holding(1, 2)), spend(scene.holding(2, 1))]);
            assert_eq!(ended[1].1, Answer::Told, "the patient one");
            ended.into()
        });
    });
}

#[test]
fn a_spend_that_is_given_up_and_tried_again_is_billed_once_or_not_at_all() {
    explore(3 * SCHEDULES, || {
        while_time_passes([START], |scene| {
            let ended = all([try_again(scene.holding(1, 2)), try_again(scene.holding(2, 1))]);
            assert!(ended.iter().all(|(_, answer)| *answer != Answer::GivenUp));
            ended.into()
        });
    });
}

/// No spend was written yet, so there is nothing to void, and the second attempt of each succeeds.
#[test]
fn a_spend_that_is_given_up_before_the_writer_looks_is_not_written() {
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        let spenders = [1, 2].map(|n| scene.holding(n, 1));
        let ended = all(spenders.clone().map(spend_impatiently));
        assert!(ended.iter().all(|(_, answer)| *answer == Answer::GivenUp));
        let writer = write(work);
        let ended = all(spenders.map(spend));
        assert!(ended.iter().all(|(_, answer)| *answer == Answer::Told), "{ended:?}");
        scene.close(writer, &ended);
    });
}

#[test]
fn attempts_of_one_lookup_at_once_spend_once() {
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        let writer = write(work);
        let spender = scene.holding(1, 2);
        let [first, second, third] = all([(); 3].map(|()| spend(spender.clone())));
        assert!([&first, &second, &third].iter().all(|(_, answer)| *answer == Answer::Told));
        drop(spender);
        scene.close(writer, &[first]);
    });
}

#[test]
fn of_a_spend_and_a_release_one_wins() {
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        let writer = write(work);
        let spender = scene.holding(1, 2);
        let release = thread::spawn({
            let spender = spender.clone();
            move || spender.release()
        });
        let ended = [spender.spend()];
        assert_eq!(release.join().unwrap(), ended[0].1 != Answer::Told);
        drop(spender);
        scene.close(writer, &ended);
    });
}

#[test]
fn a_spend_that_is_given_up_leaves_its_hold_to_a_release_or_to_nobody() {
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        let writer = write(work);
        let spender = scene.holding(1, 2);
        let release = thread::spawn({
            let spender = spender.clone();
            move || spender.release()
        });
        let ended = [spender.spend_impatiently()];
        if release.join().unwrap() {
            assert_ne!(ended[0].1, Answer::Told);
        }
        drop(spender);
        scene.close(writer, &ended);
    });
}

#[test]
fn a_hold_that_expires_is_spent_or_given_back() {
    explore(SCHEDULES, || {
        while_time_passes([end(), end() + Account::TOMBSTONE_TTL], |scene| {
            let spends = [(1, true), (2, false), (3, false)]
                .map(|(n, is_patient)| (scene.spender(n, 1), is_patient))
                .map(|(spender, is_patient)| {
                    thread::spawn(move || match spender.try_hold() {
                        Some(HoldOutcome::Granted) if is_patient => Some(spender.spend()),
                        Some(HoldOutcome::Granted) => Some(spender.spend_impatiently()),
                        _ => None,
                    })
                });
            spends.into_iter().filter_map(|spend| spend.join().unwrap()).collect()
        });
    });
}
