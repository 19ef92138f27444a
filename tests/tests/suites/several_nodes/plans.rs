//! The plans of the functions that nodes call, while the statistics of their tables change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::Settlement::{Release, Spend};
use enrich_lib::ports::Credits;
use enrich_lib::receipt::Receipt;
use enrich_store::Ledger as _;
use enrich_tests::servers::Postgres;
use serde_json::Value;

use super::world::World;

/// Logs the plan of each statement that ends, also of those in functions.
const SETTINGS: [&str; 5] = [
    "session_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_nested_statements=on",
    "auto_explain.log_format=json",
    "autovacuum=off",
];

/// The content of the tables when their statistics are made.
const STATES: [(&str, &str); 5] = [
    ("one workspace", "SELECT"),
    // The planner prefers to read a small table whole.
    (
        "a few hundred opt-outs",
        "INSERT INTO opt_out SELECT decode(md5(n::text), 'hex'), false, 0 FROM generate_series(-300, -1) AS n",
    ),
    (
        "dead rows",
        "INSERT INTO credit_hold SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 1, 1, n FROM generate_series(1, 30000) AS n;
         INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
             SELECT n, 1, 0, 0, 1, 1, 0 FROM generate_series(1, 30000) AS n;
         INSERT INTO balance SELECT 1, n, 0 FROM generate_series(100001, 130000) AS n;
         INSERT INTO credit_receipt SELECT 1, decode(md5(n::text), 'hex'), decode(md5(n::text), 'hex'), 0 FROM generate_series(1, 30000) AS n;
         DELETE FROM credit_hold; DELETE FROM settlement; DELETE FROM credit_receipt; DELETE FROM balance WHERE version > 100000",
    ),
    ("dead rows that were removed", "SELECT"),
    (
        "many rows",
        "INSERT INTO workspace (id, quota_limit, window_seconds, created_at)
             SELECT 'w' || n, 500, 60, 0 FROM generate_series(1, 5000) AS n;
         INSERT INTO credit_hold SELECT decode(md5(n::text), 'hex'), n, 1, 10000000000000 + n FROM generate_series(1, 5000) AS n;
         INSERT INTO credit_spend SELECT decode(md5(n::text), 'hex'), n % 5000, 1, 1, 0 FROM generate_series(1, 50000) AS n;
         INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
             SELECT n, n, 0, 0, 1, 1, 0 FROM generate_series(1, 500) AS n;
         INSERT INTO person SELECT 1, decode(md5(n::text), 'hex'), 'x' FROM generate_series(1, 50000) AS n;
         INSERT INTO opt_out SELECT decode(md5(n::text), 'hex'), false, 0 FROM generate_series(1, 5000) AS n",
    ),
];

/// The statements of the test itself are not logged.
const QUIET: &str = "SET auto_explain.log_min_duration = -1";

/// The functions are planned again after an ANALYZE, which counts one row in tables full of dead ones.
#[tokio::test(flavor = "multi_thread")]
async fn plans_do_not_depend_on_statistics() {
    let postgres = Postgres::start_with(&SETTINGS, &[]);
    let world = World::on(&postgres, 1_000_000).await;
    let start = postgres.log().len();
    let mut plans = BTreeMap::<String, BTreeMap<BTreeSet<String>, &str>>::new();
    let mut read_to = start;
    for (state, change) in STATES {
        world.sql(&format!("{QUIET}; {change}")).await;
        if state == "dead rows that were removed" {
            world.sql("VACUUM").await;
        }
        world.sql("ANALYZE").await;
        call_functions(&world).await;
        let log = postgres.log();
        for plan in logged(&log[read_to..]) {
            let text = plan["Query Text"].as_str().unwrap().to_owned();
            // Statements outside of functions are planned each time, for the tables as they are.
            if !text.starts_with("/* enrich: ") {
                let mut nodes = BTreeSet::new();
                describe(&plan["Plan"], &mut nodes);
                plans.entry(text).or_default().insert(nodes, state);
            }
        }
        read_to = log.len();
    }
    let reads =
        |table: &str| plans.values().flat_map(BTreeMap::keys).flatten().any(|node| node.contains(table));
    for table in [
        "balance",
        "credit_hold",
        "credit_receipt",
        "credit_spend",
        "settlement",
        "workspace",
        "person",
        "opt_out",
    ] {
        assert!(reads(&format!("Scan on {table}:")), "no statement reads {table}: {plans:#?}");
    }
    for (text, plans) in plans {
        assert_eq!(plans.len(), 1, "{text} has several plans: {plans:#?}");
        let scans = plans.keys().flatten().filter(|node| node.contains(" Scan on "));
        let unconditional: Vec<_> = scans.filter(|node| node.ends_with(": ")).collect();
        assert!(unconditional.is_empty(), "{text} reads whole tables: {unconditional:?}");
    }
}

/// Calls each function, on a new node.
async fn call_functions(world: &World<'_>) {
    let node = world.node_with(Duration::from_secs(5)).await;
    let (mut spent, released) = (world.lookup(&node, 2), world.holding(&node, 1).await);
    spent.receipt = Some(Receipt::from_bytes([1; 16]));
    node.ledger.hold(&spent).await.unwrap();
    node.ledger.settle(&spent, Spend(1)).await.unwrap();
    node.ledger.settle(&spent, Spend(1)).await.unwrap(); // a fence
    node.ledger.settle(&released, Release).await.unwrap();
    node.ledger.write_statistics().await.unwrap();
    let find = "SELECT find_people(ARRAY[$1::bytea], ARRAY[$1::bytea], 0.5)";
    let client = world.postgres.client(&world.database).await;
    client.query(find, &[&&[0_u8; 16][..]]).await.unwrap();
}

/// Returns the plans in a log, whose lines other than the first of an entry begin with a tab.
fn logged(log: &str) -> Vec<Value> {
    let entries = log.split("plan:\n").skip(1);
    let json = entries.map(|entry| {
        let lines = entry.lines().map_while(|line| line.strip_prefix('\t'));
        lines.collect::<Vec<_>>().join("\n")
    });
    json.map(|text| serde_json::from_str(&text).unwrap()).collect()
}

/// Adds a description of each node of a plan: its type, its table and its condition.
fn describe(node: &Value, nodes: &mut BTreeSet<String>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let condition = format!("{}{}", text("Index Cond"), text("TID Cond"));
    nodes.insert(match node["Relation Name"].as_str() {
        Some(table) => format!("{} on {table}: {condition}", text("Node Type")),
        None => text("Node Type").to_owned(),
    });
    node["Plans"].as_array().into_iter().flatten().for_each(|child| describe(child, nodes));
}
