//! An audit adds up the rows itself, and so finds errors that no balance shows.

use enrich_sqlite::complete;
use enrich_store::records::Tally;

use crate::world::{Files, World};

fn even(total: u64) -> Tally {
    Tally { total, rows: total }
}

#[test]
fn audit_reports_changed_totals() {
    for (tampering, granted, spent) in [
        ("UPDATE workspace SET granted = 11", Tally { total: 11, rows: 10 }, even(0)),
        ("UPDATE workspace SET spent = 1", even(10), Tally { total: 1, rows: 0 }),
        (
            "INSERT INTO credit_spend VALUES (x'0123456789abcdef0123456789abcdef', 1, 1, 5, 0)",
            even(10),
            Tally { total: 0, rows: 5 },
        ),
        (
            "INSERT INTO credit_grant (workspace, credits, at) VALUES (1, 5, 0)",
            Tally { total: 10, rows: 15 },
            even(0),
        ),
    ] {
        let files = Files::with_credits(10);
        files.sql().execute_batch(tampering).unwrap();
        let audit = complete(files.admin().audit()).unwrap();
        assert!(!audit.reconciles(), "{tampering}");
        assert_eq!((audit.workspaces[0].granted, audit.workspaces[0].spent), (granted, spent), "{tampering}");
    }
}

#[test]
fn audit_reports_other_rows_that_are_missing_or_wrong() {
    for (tampering, expected) in [
        (
            "INSERT INTO credit_grant (workspace, credits, at) VALUES (9, 5, 0)",
            "1 grants without a workspace",
        ),
        ("INSERT INTO credit_spend VALUES (randomblob(16), 9, 1, 5, 0)", "1 spends without a workspace"),
        (
            "PRAGMA ignore_check_constraints = on; UPDATE workspace SET spent = 11",
            "1 workspaces with more credits spent than granted",
        ),
        ("DROP TRIGGER credit_spend_no_delete", "the trigger credit_spend_no_delete is missing"),
        ("UPDATE usage_day SET credits = 5", "the usage of demo with key_00000001 is"),
        ("UPDATE usage_day SET lookups = 5", "the usage of demo with key_00000001 is"),
        ("DELETE FROM usage_day", "the usage of demo with key_00000001 is"),
    ] {
        let world = World::with_credits(10);
        world.spend(&world.hold(1)).unwrap();
        world.sql().execute_batch(&format!("PRAGMA foreign_keys = off; {tampering}")).unwrap();
        let audit = complete(world.admin().audit()).unwrap();
        let is_reported = audit.errors.iter().any(|error| error.contains(expected));
        assert!(!audit.reconciles() && is_reported, "{tampering}: {audit:?}");
    }
}
