//! An operator makes changes while the ledger reads the same data.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_interleavings::{GRANTED, START, Scene, explore, key, workspace, write};
use enrich_lib::ports::Keys;
use enrich_lib::window::Quota;
use enrich_sqlite::Ledger;
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 1_500;

#[test]
fn a_grant_counts_after_the_next_tick() {
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        // An account that is already in memory adds steps to a tick.
        let other = "other".parse().unwrap();
        scene.admin().create_workspace(&other, Quota::default(), 1, START).unwrap();
        scene.ledger.balance(&other).unwrap();
        let writer = write(work);
        let early = thread::spawn({
            let ledger = scene.ledger.clone();
            move || block_on(ledger.tick(START)).unwrap()
        });
        let operator = thread::spawn({
            let (mut admin, ledger) = (scene.admin(), scene.ledger.clone());
            move || {
                admin.grant(&workspace(), 2, START).unwrap();
                block_on(ledger.tick(START)).unwrap();
            }
        });
        // The first call reads the account from disk.
        let before = scene.ledger.balance(&workspace()).unwrap().granted;
        assert!([GRANTED, GRANTED + 2].contains(&before));
        early.join().unwrap();
        operator.join().unwrap();
        assert_eq!(scene.ledger.balance(&workspace()).unwrap().granted, GRANTED + 2);
        scene.close(writer, &[]);
    });
}

#[test]
fn a_revoked_key_is_nobodys_after_the_next_tick() {
    fn is_known(ledger: &Ledger) -> bool {
        block_on(ledger.find(&key().digest())).unwrap().is_some()
    }
    explore(SCHEDULES, || {
        let (scene, work) = Scene::open();
        let writer = write(work);
        let operator = thread::spawn({
            let (mut admin, ledger) = (scene.admin(), scene.ledger.clone());
            move || {
                let id = &admin.keys(&workspace()).unwrap()[0].id;
                admin.revoke_key(id, START).unwrap();
                block_on(ledger.tick(START)).unwrap();
                assert!(!is_known(&ledger));
            }
        });
        // A result read during the change must not stay in the cache.
        is_known(&scene.ledger);
        is_known(&scene.ledger);
        operator.join().unwrap();
        assert!(!is_known(&scene.ledger));
        scene.close(writer, &[]);
    });
}
