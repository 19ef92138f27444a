//! An operator makes changes while the ledger reads the same data.

use enrich_interleavings::{GRANTED, LedgerFixture, START, explore, key, spawn_writer, workspace};
use enrich_lib::ports::Keys;
use enrich_lib::window::Quota;
use enrich_sqlite::{Ledger, complete};
use enrich_store::{Actor, Clocks, Ledger as _};
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 1_000;

#[test]
fn grant_is_available_after_next_tick() {
    explore(SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        // An account that is already in memory adds steps to a tick.
        let other = "other".parse().unwrap();
        complete(fixture.admin().create_workspace(&other, Quota::default(), 1, START)).unwrap();
        fixture.ledger.balance(&other).unwrap();
        let writer = spawn_writer(work);
        let early = thread::spawn({
            let ledger = fixture.ledger.clone();
            move || block_on(ledger.tick(Clocks::simulated(START))).unwrap()
        });
        let operator = thread::spawn({
            let (mut admin, ledger) = (fixture.admin(), fixture.ledger.clone());
            move || {
                complete(admin.grant(&workspace(), 2, START)).unwrap();
                block_on(ledger.tick(Clocks::simulated(START))).unwrap();
            }
        });
        // The first call reads the account from disk.
        let before = fixture.ledger.balance(&workspace()).unwrap().granted;
        assert!([GRANTED, GRANTED + 2].contains(&before));
        early.join().unwrap();
        operator.join().unwrap();
        assert_eq!(fixture.ledger.balance(&workspace()).unwrap().granted, GRANTED + 2);
        fixture.close(writer, &[]);
    });
}

#[test]
fn revoked_key_is_unknown_after_next_refresh() {
    fn is_known(ledger: &Ledger) -> bool {
        block_on(ledger.find(&key().digest())).unwrap().is_some()
    }
    explore(SCHEDULES, || {
        let (fixture, work) = LedgerFixture::open();
        let writer = spawn_writer(work);
        let operator = thread::spawn({
            let (mut admin, ledger) = (fixture.admin(), fixture.ledger.clone());
            move || {
                complete(admin.revoke_key(key().digest().key_id(), &Actor::operator(START))).unwrap();
                ledger.refresh_keys().unwrap();
                assert!(!is_known(&ledger));
            }
        });
        // A result read during the change must not stay in the cache.
        is_known(&fixture.ledger);
        is_known(&fixture.ledger);
        operator.join().unwrap();
        assert!(!is_known(&fixture.ledger));
        fixture.close(writer, &[]);
    });
}
