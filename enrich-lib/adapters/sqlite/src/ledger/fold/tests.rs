//! Tests on a database file, with bounds so small that rows are updated from the tail all the time.

use enrich_lib::key::KeyId;
use enrich_lib::model::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::files::database::Schema;

const GRANTED: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    /// Writes spends in one transaction, as pairs of an id and a workspace. Ids may be late or repeated.
    Write(Vec<(u8, i64)>),
    /// The same, but the transaction is rolled back.
    RollBack(Vec<(u8, i64)>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let spends = || vec((0..64_u8, 1..=4_i64), 1..5);
    prop_oneof![
        8 => spends().prop_map(Step::Write),
        1 => spends().prop_map(Step::RollBack),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn totals_and_usage_equal_ledger_sums_after_any_steps(steps in vec(step(), 1..40)) {
        let mut fixture = Fixture::new();
        for step in steps {
            match step {
                Step::Write(spends) => fixture.write(&spends, true).unwrap(),
                Step::RollBack(spends) => fixture.write(&spends, false).unwrap(),
                Step::Reopen => fixture.reopen().unwrap(),
            }
            prop_assert_eq!(fixture.totals(), fixture.sums());
            prop_assert_eq!(fixture.usage(), fixture.spends());
        }
        fixture.reopen().unwrap();
        prop_assert_eq!(fixture.rows(), fixture.sums());
    }
}

#[test]
fn updates_few_rows_per_commit() {
    let mut fixture = Fixture::new();
    fixture.fold.bounds = [8, 8];
    for id in 0..8 {
        fixture.write(&[(2 * id + 1, 1 + i64::from(id % 4))], true).unwrap();
    }
    // The ninth commit finds a tail of eight spends and updates one row. A late spend is added to its row at
    // once.
    fixture.write(&[(17, 4)], true).unwrap();
    assert_eq!((fixture.rows(), fixture.totals()), (vec![2, 0, 0, 0], vec![2, 2, 2, 3]));
    fixture.write(&[(2, 1), (4, 4)], true).unwrap();
    assert_eq!((fixture.rows(), fixture.totals()), (vec![3, 2, 2, 0], vec![3, 2, 2, 4]));
    fixture.write(&[(19, 1)], true).unwrap();
    assert_eq!((fixture.rows(), fixture.totals()), (vec![3, 2, 2, 3], vec![4, 2, 2, 4]));
}

#[test]
fn updates_rows_after_eight_spends_of_each_workspace() {
    let mut fixture = Fixture::new();
    fixture.fold.bounds = [2, 100];
    for id in 1..=24 {
        fixture.write(&[(id, i64::from(id % 3) + 1)], true).unwrap();
    }
    assert_eq!(fixture.rows(), [0, 0, 0, 0]);
    fixture.write(&[(25, 1)], true).unwrap();
    assert_eq!((fixture.rows(), fixture.totals()), (vec![8, 0, 0, 0], vec![9, 8, 8, 0]));
}

#[test]
fn rejects_spend_above_grants_of_a_row_that_is_not_yet_updated() {
    let mut fixture = Fixture::new();
    fixture.fold.bounds = [8, 8];
    fixture.sql("UPDATE workspace SET granted = 2 WHERE rowid = 4");
    for id in 1..=8 {
        fixture.write(&[(id, i64::from(id % 4) + 1)], true).unwrap();
    }
    fixture.write(&[(9, 1)], true).unwrap();
    assert_eq!(fixture.rows(), [2, 0, 0, 0]);
    assert!(fixture.write(&[(10, 4)], true).unwrap_err().is_constraint());
    fixture.sql("UPDATE workspace SET granted = 3 WHERE rowid = 4");
    fixture.write(&[(11, 4)], true).unwrap();
    assert_eq!(fixture.totals(), [3, 2, 2, 3]);
}

#[test]
fn rejects_spend_above_grants() {
    // In the rows, and in the tail.
    for bounds in [[2, 4], [8, 8]] {
        let mut fixture = Fixture::new();
        fixture.fold.bounds = bounds;
        fixture.sql("UPDATE workspace SET granted = 2");
        fixture.write(&[(1, 1), (2, 1)], true).unwrap();
        for more in [[(3, 1)], [(0, 1)]] {
            let refused = fixture.write(&more, true).unwrap_err();
            assert!(refused.is_constraint(), "{refused}");
        }
        assert_eq!(fixture.totals(), fixture.sums());
        fixture.sql("UPDATE workspace SET granted = 3");
        fixture.write(&[(4, 1)], true).unwrap();
        assert_eq!(fixture.totals()[0], 3);
    }
}

#[test]
fn skips_overspent_row_and_reports_it_at_next_start() {
    let mut fixture = Fixture::new();
    fixture.write(&[(1, 1), (2, 2), (3, 3)], true).unwrap();
    fixture.sql("UPDATE workspace SET granted = 0 WHERE rowid = 2");
    for id in 4..9 {
        fixture.write(&[(id, 3)], true).unwrap();
    }
    assert_eq!((fixture.rows(), fixture.totals()), (vec![1, 0, 0, 0], vec![1, 1, 6, 0]));
    assert!(fixture.reopen().unwrap_err().is_constraint());
    fixture.sql("UPDATE workspace SET granted = 1 WHERE rowid = 2");
    fixture.reopen().unwrap();
    assert_eq!(fixture.rows(), [1, 1, 6, 0]);
}

/// Four workspaces and their totals.
struct Fixture {
    db: Connection,
    fold: Fold,
    _dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut db = database::create(&dir.path().join("accounts.db"), Schema::Accounts).unwrap();
        db.pragma_update(None, "synchronous", "OFF").unwrap();
        for id in ["a", "b", "c", "d"] {
            let insert = "INSERT INTO workspace (id, quota_limit, window_seconds, created_at, granted) VALUES (?, 1, 1, 0, ?)";
            db.execute(insert, params![id, GRANTED]).unwrap();
        }
        let fold = Fold::open_with([2, 4], &mut db).unwrap();
        Self { db, fold, _dir: dir }
    }

    /// Writes spends as the writer does. Each has an id and a workspace, and costs one credit. The id
    /// determines its key and its day.
    fn write(&mut self, spends: &[(u8, i64)], is_committed: bool) -> Result<(), SqliteError> {
        let tx = database::begin(&mut self.db)?;
        let mut change = self.fold.advance(&tx, spends.len())?;
        for (id, workspace) in spends {
            let lookup = BilledLookup {
                lookup_id: LookupId::from_bytes([*id; 16]),
                workspace: *workspace,
                key: KeyId::from_number(u32::from(id % 2)),
                at: Timestamp::from_unix_ms(u64::from(id % 3) * 86_400_000),
                credits: 1,
            };
            let insert = "INSERT INTO credit_spend VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING";
            let row =
                params![lookup.lookup_id.as_bytes(), workspace, lookup.key.number(), lookup.at.unix_ms()];
            if tx.execute(insert, row)? == 1 {
                change.add(&lookup);
            }
        }
        self.fold.write(&tx, &mut change)?;
        if is_committed {
            tx.commit()?;
            self.fold.apply(change);
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), SqliteError> {
        self.fold = Fold::open_with(self.fold.bounds, &mut self.db)?;
        Ok(())
    }

    fn sql(&self, sql: &str) {
        self.db.execute(sql, []).unwrap();
    }

    /// Runs a query that returns one number per workspace.
    fn numbers(&self, select: &str) -> Vec<i64> {
        let mut select = self.db.prepare(select).unwrap();
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn rows(&self) -> Vec<i64> {
        self.numbers("SELECT spent FROM workspace ORDER BY rowid")
    }

    fn totals(&self) -> Vec<i64> {
        self.numbers("SELECT spent FROM account ORDER BY rowid")
    }

    fn sums(&self) -> Vec<i64> {
        self.numbers(
            "SELECT (SELECT count(*) FROM credit_spend s WHERE s.workspace = w.rowid) FROM workspace w ORDER BY w.rowid",
        )
    }

    /// Returns the lookups of each workspace, day and key by the usage.
    fn usage(&self) -> Vec<(i64, i64, i64, i64)> {
        self.counts(
            "SELECT workspace, day, key, sum(lookups) FROM (
                 SELECT workspace, day, key, lookups FROM usage_day
                 UNION ALL SELECT workspace, day, key, lookups FROM uncounted_usage
             ) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        )
    }

    /// Returns the same by the spends.
    fn spends(&self) -> Vec<(i64, i64, i64, i64)> {
        self.counts(
            "SELECT workspace, at / 86400000, key, count(*) FROM credit_spend GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        )
    }

    fn counts(&self, select: &str) -> Vec<(i64, i64, i64, i64)> {
        let mut select = self.db.prepare(select).unwrap();
        let counts = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        counts.unwrap().collect::<Result<_, _>>().unwrap()
    }
}
