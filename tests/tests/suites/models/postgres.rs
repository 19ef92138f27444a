//! Checks that the fake PostgreSQL behaves like the functions of the adapter's migrations on a real server. The simulation
//! relies on this.
//!
//! The same client makes the same random calls on both. All results and the final tables must be equal. Epochs are compared by
//! their order, because those of the real server are random.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use enrich_fakes::postgres::{Database, Lease, Postgres as Fake, Workspace};
use enrich_tests::servers::Postgres;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, NoTls, Row};

/// Few workspaces, so that calls conflict often.
const WORKSPACES: [(&str, i64); 2] = [("large", 40), ("small", 3)];
const EPOCHS: i64 = 3;
const LOOKUPS: u8 = 12;

/// The id of the key of all lookups.
const KEY: i64 = 1;

/// Long enough that no epoch expires during a test, because the two servers do not share a clock.
const TTL_MS: i64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Beat { epoch: i64 },
    Leave { epoch: i64 },
    End { leases_max: i64 },
    Take { epoch: i64, workspace: usize, number: i64, known: i64, needs: i64, wants: i64, again: bool },
    Recalled { epoch: i64, leases_max: i64 },
    Return { epoch: i64, number: i64, returns: Vec<Option<i64>>, seen: i64 },
    Show { epoch: i64, held: i64 },
    Settle { spends: Vec<Spend> },
    Charge { spends: Vec<Spend> },
}

#[derive(Clone, Debug)]
struct Spend {
    epoch: i64,
    workspace: i64,
    lookup: u8,
    cost: i64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let epoch = 1..=EPOCHS;
    let spend = (epoch.clone(), 0..LOOKUPS, 1..=3_i64).prop_map(|(epoch, lookup, cost)| Spend {
        epoch,
        workspace: workspace_of(lookup),
        lookup,
        cost,
    });
    let (number, known) =
        (prop_oneof![8 => Just(1_i64), 1 => 2..4_i64], prop_oneof![2 => Just(0), 1 => 0..20_i64]);
    let of_lease = (epoch.clone(), 0..=WORKSPACES.len(), number.clone(), known);
    let take = (of_lease, 0..5_i64, 0..20_i64, any::<bool>()).prop_map(
        |((epoch, workspace, number, known), needs, wants, again)| Step::Take {
            epoch,
            workspace,
            number,
            known,
            needs,
            wants,
            again,
        },
    );
    let returns = vec(prop_oneof![4 => (0..10_i64).prop_map(Some), 1 => Just(None)], WORKSPACES.len());
    let returns = (epoch.clone(), number, returns, 0..3_i64)
        .prop_map(|(epoch, number, returns, seen)| Step::Return { epoch, number, returns, seen });
    let step = prop_oneof![
        1 => Just(Step::Begin),
        1 => epoch.clone().prop_map(|epoch| Step::Beat { epoch }),
        2 => epoch.clone().prop_map(|epoch| Step::Leave { epoch }),
        1 => (1..3_i64).prop_map(|leases_max| Step::End { leases_max }),
        1 => (epoch.clone(), 1..3_i64).prop_map(|(epoch, leases_max)| Step::Recalled { epoch, leases_max }),
        6 => take,
        3 => returns,
        1 => (epoch, 0..5_i64).prop_map(|(epoch, held)| Step::Show { epoch, held }),
        5 => vec(spend.clone(), 1..6).prop_map(|spends| Step::Settle { spends }),
        3 => vec(spend, 1..6).prop_map(|spends| Step::Charge { spends }),
    ];
    // Starts with two nodes.
    vec(step, 1..40).prop_map(|steps| [vec![Step::Begin; 2], steps].concat())
}

/// Returns the workspace that a lookup belongs to.
fn workspace_of(lookup: u8) -> i64 {
    i64::from(lookup) % WORKSPACES.len() as i64 + 1
}

#[test]
fn fake_matches_postgresql() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Postgres::shared();
    let database = runtime.block_on(server.create_database());
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            runtime.block_on(compare(&database, &steps));
            Ok(())
        })
        .unwrap();
}

/// A case that random steps rarely reach.
#[test]
fn fake_returns_leases_of_a_closed_node_like_postgresql() {
    let take =
        |epoch, needs, again| Step::Take { epoch, workspace: 1, number: 1, known: 0, needs, wants: 0, again };
    let steps = [
        Step::Begin,
        Step::Begin,
        take(1, 3, false),
        Step::Leave { epoch: 1 },
        take(2, 3, false),
        Step::Leave { epoch: 2 },
        Step::End { leases_max: 1 },
        Step::End { leases_max: 1 },
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { compare(&Postgres::shared().create_database().await, &steps).await });
}

async fn compare(database: &str, steps: &[Step]) {
    let real = real(database).await;
    let (fake, client) = fake().await;
    let mut epochs = [const { Vec::new() }; 2];
    for step in steps {
        let real_result = call(&real, step, &mut epochs[0]).await;
        assert_eq!(call(&client, step, &mut epochs[1]).await, real_result, "{step:?}");
    }
    assert_eq!(fake.with(|database| summary(database)), real_summary(&real, &epochs[0]).await);
    check_usage(&real).await;
}

/// Executes a call and returns its rows as text, or its SQLSTATE. `epochs` are those that the server has begun.
async fn call(client: &Client, step: &Step, epochs: &mut Vec<i64>) -> Result<String, String> {
    let begun = |n: &i64| epochs.get(*n as usize - 1).copied().unwrap_or(-n);
    let rows = match step {
        Step::Begin => {
            let row = client.query_one("SELECT node_begin($1, $2)", &[&"node", &TTL_MS]).await.unwrap();
            epochs.push(row.get(0));
            return Ok(String::new());
        }
        Step::Beat { epoch } => {
            client.query("SELECT is_active, revision FROM node_beat($1, $2)", &[&begun(epoch), &TTL_MS]).await
        }
        Step::Leave { epoch } => client.query("SELECT node_leave($1)", &[&begun(epoch)]).await,
        Step::End { leases_max } => client.query("SELECT nodes_end($1)", &[leases_max]).await,
        Step::Take { epoch, workspace, number, known, needs, wants, again } => {
            let id = WORKSPACES.get(*workspace).map_or("unknown", |(id, _)| id);
            let given: [&(dyn ToSql + Sync); 7] = [&begun(epoch), &id, number, known, needs, wants, again];
            let call = "SELECT outcome, of_workspace, taken FROM lease_take($1, $2, $3, $4, $5, $6, $7)";
            client.query(call, &given).await
        }
        Step::Recalled { epoch, leases_max } => {
            let call = "SELECT names, workspaces, numbers, takes, recalls FROM leases_recalled($1, $2)";
            client.query(call, &[&begun(epoch), leases_max]).await
        }
        Step::Return { epoch, number, returns, seen } => {
            let (numbers, seen) = (vec![number; returns.len()], vec![seen; returns.len()]);
            let given: [&(dyn ToSql + Sync); 5] = [&begun(epoch), &vec![1_i64, 2], &numbers, returns, &seen];
            client.query("SELECT lease_return($1, $2, $3, $4, $5)", &given).await
        }
        Step::Show { epoch, held } => {
            let given: [&(dyn ToSql + Sync); 3] = [&begun(epoch), &vec![1_i64, 2], &vec![*held, 0]];
            client.query("SELECT lease_show($1, $2, $3)", &given).await
        }
        Step::Settle { spends } => settle(client, spends, begun).await,
        Step::Charge { spends } => {
            let epochs: Vec<_> = spends.iter().map(|spend| begun(&spend.epoch)).collect();
            let workspaces: Vec<_> = spends.iter().map(|spend| spend.workspace).collect();
            let lookups: Vec<_> = spends.iter().map(|spend| id(spend.lookup)).collect();
            let costs: Vec<_> = spends.iter().map(|spend| spend.cost).collect();
            let (keys, arrivals) = (vec![KEY; spends.len()], vec![UNIX_EPOCH; spends.len()]);
            let given: [&(dyn ToSql + Sync); 6] = [&epochs, &workspaces, &lookups, &keys, &costs, &arrivals];
            client.query("SELECT charge($1, $2, $3, $4, $5, $6)", &given).await
        }
    };
    match rows {
        Ok(rows) => Ok(rows.iter().map(text).collect()),
        Err(error) => Err(error.code().expect("an error of the server").code().to_owned()),
    }
}

/// Calls `settle` with the leases in lock order and the spends in lookup order.
async fn settle(
    client: &Client,
    spends: &[Spend],
    begun: impl Fn(&i64) -> i64,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let mut spends = spends.to_vec();
    spends.sort_by_key(|spend| spend.lookup);
    let mut sums_by_lease: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for spend in &spends {
        *sums_by_lease.entry((spend.workspace, spend.epoch)).or_default() += spend.cost;
    }
    let number = |spend: &Spend| sums_by_lease.range(..=(spend.workspace, spend.epoch)).count() as i32;
    let epochs: Vec<_> = sums_by_lease.keys().map(|(_, epoch)| begun(epoch)).collect();
    let workspaces: Vec<_> = sums_by_lease.keys().map(|(workspace, _)| *workspace).collect();
    let sums: Vec<_> = sums_by_lease.values().copied().collect();
    let lookups: Vec<_> = spends.iter().map(|spend| id(spend.lookup)).collect();
    let leases: Vec<_> = spends.iter().map(number).collect();
    let costs: Vec<_> = spends.iter().map(|spend| spend.cost).collect();
    let (keys, arrivals) = (vec![KEY; spends.len()], vec![UNIX_EPOCH; spends.len()]);
    let given: [&(dyn ToSql + Sync); 8] =
        [&epochs, &workspaces, &sums, &lookups, &leases, &keys, &costs, &arrivals];
    client.query("SELECT settle($1, $2, $3, $4, $5, $6, $7, $8)", &given).await
}

fn text(row: &Row) -> String {
    let column = |(at, column): (usize, &tokio_postgres::Column)| match *column.type_() {
        Type::BOOL => format!("{:?}", row.get::<_, Option<bool>>(at)),
        Type::TEXT => format!("{:?}", row.get::<_, Option<String>>(at)),
        Type::INT8 => format!("{:?}", row.get::<_, Option<i64>>(at)),
        Type::BOOL_ARRAY => format!("{:?}", row.get::<_, Option<Vec<Option<bool>>>>(at)),
        Type::TEXT_ARRAY => format!("{:?}", row.get::<_, Option<Vec<String>>>(at)),
        Type::INT8_ARRAY => format!("{:?}", row.get::<_, Option<Vec<i64>>>(at)),
        Type::VOID => String::new(),
        ref other => panic!("a column of type {other}"),
    };
    row.columns().iter().enumerate().map(column).collect::<Vec<_>>().join(" ")
}

/// The final state: totals, leases, and spends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    totals: Vec<[i64; 3]>,
    leases: Vec<([i64; 2], [i64; 7])>,
    spends: Vec<(u8, i64)>,
}

fn summary(database: &Database) -> Summary {
    let lease = |(at, l): (&(i64, i64), &Lease)| {
        ([at.0, at.1], [l.number, l.taken, l.returned, l.spent, l.held, l.recalled, l.answered])
    };
    Summary {
        totals: database.workspaces().iter().map(|w| [w.granted, w.spent, w.leased]).collect(),
        leases: database.leases().iter().map(lease).collect(),
        spends: (0..LOOKUPS)
            .filter_map(|n| database.committed_spend(&id(n).0).map(|credits| (n, credits)))
            .collect(),
    }
}

async fn real_summary(client: &Client, epochs: &[i64]) -> Summary {
    let numbers = |row: &Row, from: usize, to: usize| (from..to).map(|at| row.get(at)).collect::<Vec<i64>>();
    let totals =
        client.query("SELECT granted, spent, leased FROM workspace ORDER BY rowid", &[]).await.unwrap();
    let leases = "SELECT workspace, array_position($1, epoch)::bigint,
             number, taken, returned, spent, held, recalled, answered
         FROM lease ORDER BY 1, 2";
    let leases = client.query(leases, &[&epochs]).await.unwrap();
    let spends = "SELECT lookup_id, credits FROM credit_spend ORDER BY 1";
    let spends = client.query(spends, &[]).await.unwrap();
    Summary {
        totals: totals.iter().map(|row| numbers(row, 0, 3).try_into().unwrap()).collect(),
        leases: leases
            .iter()
            .map(|row| (numbers(row, 0, 2).try_into().unwrap(), numbers(row, 2, 9).try_into().unwrap()))
            .collect(),
        spends: spends.iter().map(|row| (row.get::<_, Uuid>(0).0[15], row.get(1))).collect(),
    }
}

/// Checks that the billed usage of each node is the sum of its spends.
async fn check_usage(client: &Client) {
    let select = "
        SELECT count(*) FROM (
            SELECT workspace, coalesce(epoch, 0) AS epoch, count(*) AS lookups, sum(credits) AS credits FROM credit_spend
            GROUP BY 1, 2
        ) AS s FULL JOIN (
            SELECT * FROM usage_day WHERE outcome = 'billed' AND lookups <> 0
        ) AS u ON u.workspace = s.workspace AND u.epoch = s.epoch
        WHERE u.lookups IS DISTINCT FROM s.lookups OR u.credits IS DISTINCT FROM s.credits";
    let differences: i64 = client.query_one(select, &[]).await.unwrap().get(0);
    assert_eq!(differences, 0, "rows of usage that differ from the spends");
}

/// Connects to the real server and resets its tables.
async fn real(database: &str) -> Client {
    let client = Postgres::shared().client(database).await;
    // Triggers make the ledger tables append-only. The replica role, which requires a superuser, disables them. TRUNCATE would
    // create new files for each table and index. JIT is off, as on the connections of nodes.
    let renew = "SET jit = off;
         SET session_replication_role = replica;
         DELETE FROM workspace; DELETE FROM api_key; DELETE FROM credit_grant; DELETE FROM credit_spend;
         DELETE FROM rejected_spend; DELETE FROM usage_day; DELETE FROM node; DELETE FROM lease;
         SELECT setval(pg_get_serial_sequence('workspace', 'rowid'), 1, false);
         SET session_replication_role = origin";
    client.batch_execute(renew).await.unwrap();
    let insert = "INSERT INTO workspace (id, quota_limit, window_seconds, created_at, granted) VALUES ($1, 500, 60, now(), $2)";
    for (id, granted) in WORKSPACES {
        client.execute(insert, &[&id, &granted]).await.unwrap();
    }
    client
}

/// Starts a fake with new tables and connects to it.
async fn fake() -> (Fake, Client) {
    let mut database = Database::default();
    for (id, granted) in WORKSPACES {
        let id = id.to_owned();
        database.create_workspace(Workspace {
            id,
            quota_limit: 500,
            window_seconds: 60,
            granted,
            ..Workspace::default()
        });
    }
    let clock = AtomicU64::new(0);
    let fake = Fake::new(database, move || clock.fetch_add(1, Ordering::Relaxed));
    let (ours, theirs) = tokio::io::duplex(4096);
    let server = fake.clone();
    tokio::spawn(async move { server.serve(theirs).await });
    let config = "user=enrich".parse::<tokio_postgres::Config>().unwrap();
    let (client, connection) = config.connect_raw(ours, NoTls).await.unwrap();
    tokio::spawn(connection);
    (fake, client)
}

/// A lookup id as a SQL `uuid`.
#[derive(Clone, Copy, Debug)]
struct Uuid([u8; 16]);

fn id(lookup: u8) -> Uuid {
    let mut id = [0; 16];
    id[15] = lookup;
    Uuid(id)
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}
