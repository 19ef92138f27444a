//! Random rounds of concurrent lookups by several nodes: of each workspace, as many are granted as it has credits, also
//! those that were released or have expired just before. Meanwhile, another session locks the balances of some, and
//! one ends expired holds.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;
use enrich_postgres::Config;
use enrich_store::Accounts;
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::Client;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::world::{Node, World};

/// Adds expired holds without credits, of which there are more than a node can end in time.
const ADD_EXPIRED_HOLDS: &str = "INSERT INTO credit_hold (lookup_id, workspace, credits, expires_at)
    SELECT decode(md5(random()::text), 'hex'), rowid, 0, extract(epoch FROM now()) * 1000 - 100 - n
    FROM workspace, generate_series(1, 1000) AS n";

const IDS: [&str; 4] = ["a", "b", "c", "d"];

#[tokio::test(flavor = "multi_thread")]
async fn each_round_of_lookups_takes_what_is_available() {
    for _ in 0..enrich_contract::cases(4) {
        let seed = rand::random();
        let mut rounds = Rounds::start(StdRng::seed_from_u64(seed)).await;
        for n in 0..20 {
            if let Err(difference) = rounds.next().await {
                panic!("seed {seed}, round {n} with {} nodes: {difference}", rounds.nodes.len());
            }
        }
        assert_eq!(rounds.accounts.audit().await.unwrap().errors, [""; 0]);
    }
}

fn has_locked(id: &str) -> String {
    format!("has locked the balance of workspace {id}")
}

struct Rounds {
    rng: StdRng,
    world: World<'static>,
    nodes: Vec<Node>,
    accounts: Accounts,
    /// The credits of each workspace.
    available: BTreeMap<&'static str, u64>,
    /// The holds of lookups that have not ended, with the number of their node and their workspace.
    open: Vec<(usize, &'static str, Hold)>,
}

impl Rounds {
    async fn start(mut rng: StdRng) -> Self {
        let world = World::new().await;
        for id in IDS {
            world.workspace(id, 0).await;
        }
        let mut nodes = Vec::new();
        for _ in 0..*[1, 1, 2, 3, 6].choose(&mut rng).unwrap() {
            let mut config = Config::default();
            config.timeout = Duration::from_secs(2);
            let sizes = &mut config.sizes;
            (sizes.batch, sizes.rows) = *[(3, 2), (sizes.batch, sizes.rows)].choose(&mut rng).unwrap();
            nodes.push(world.node_of(config).await);
        }
        let (accounts, available) = (world.admin().await, IDS.map(|id| (id, 0)).into());
        Self { rng, world, nodes, accounts, available, open: Vec::new() }
    }

    /// Returns some of the workspaces.
    fn some(&mut self, rate: f64) -> Vec<&'static str> {
        IDS.into_iter().filter(|_| self.rng.random_bool(rate)).collect()
    }

    async fn next(&mut self) -> Result<(), String> {
        for id in self.some(0.3) {
            let credits = self.rng.random_range(1..6);
            self.accounts.grant(&id.parse().unwrap(), credits, START).await.unwrap();
            *self.available.get_mut(id).unwrap() += credits;
        }
        let (owed, locked, mut shortly) = (self.some(0.3), self.some(0.05), self.some(0.4));
        shortly.retain(|id| !locked.contains(id));
        self.world.owe(&owed).await;
        let (locker, short_locker) = (self.lock(&locked).await, self.lock(&shortly).await);
        self.end_some().await;
        if self.rng.random_bool(0.05) {
            self.world.sql(ADD_EXPIRED_HOLDS).await;
        }
        let count = if self.rng.random_bool(0.3) { 1_000 } else { 0 };
        let ender = self.world.begin(&format!("SELECT FROM expire_holds(0, {count})")).await;
        let (duration, before) = (self.rng.random_range(0..50), self.available.clone());
        let (difference, ()) = tokio::join!(self.look_up(&locked), async {
            sleep(Duration::from_millis(duration)).await; // the duration of the lock
            for session in [&short_locker, &ender] {
                session.batch_execute("COMMIT").await.unwrap();
            }
        });
        locker.batch_execute("COMMIT").await.unwrap();
        self.are_held_again(&locked).await;
        difference.map_err(|difference| {
            format!(
                "{difference}; credits: {before:?}; not returned: {owed:?}; locked: {locked:?}; \
                 locked for {duration} ms: {shortly:?}"
            )
        })
    }

    async fn lock(&self, ids: &[&str]) -> Client {
        self.world.lock_balances(&format!("({})", ids.join("|"))).await
    }

    /// Ends most of the open holds at the same time: some are spent, some are released, and some expire.
    async fn end_some(&mut self) {
        let Self { rng, world, nodes, available, open, .. } = self;
        let (ended, left) = std::mem::take(open).into_iter().partition(|_| rng.random_bool(0.8));
        *open = left;
        let mut settled = Vec::new();
        let mut expired = Vec::new();
        for (node, id, hold) in ended {
            let fate = rng.random_range(0..4);
            *available.get_mut(id).unwrap() += u64::from(fate > 0);
            match fate {
                0 => settled.push((node, hold, Settlement::Spend(1))),
                1 => expired.push(format!("'\\x{}'", hex::encode(hold.lookup_id.as_bytes()))),
                _ => settled.push((node, hold, Settlement::Release)),
            }
        }
        let settle =
            settled.iter().map(|(node, hold, settlement)| nodes[*node].ledger.settle(hold, *settlement));
        for settled in join_all(settle).await {
            settled.unwrap();
        }
        if !expired.is_empty() {
            let expire = "UPDATE credit_hold SET expires_at = extract(epoch FROM now()) * 1000 - 1";
            world.sql(&format!("{expire} WHERE lookup_id IN ({})", expired.join(","))).await;
        }
    }

    /// Begins lookups at the same time.
    async fn look_up(&mut self, locked: &[&str]) -> Result<(), String> {
        let lookups: Vec<_> = (0..self.rng.random_range(1..30))
            .map(|_| (self.rng.random_range(0..self.nodes.len()), *IDS.choose(&mut self.rng).unwrap()))
            .collect();
        let outcomes = join_all(lookups.iter().map(|(node, id)| self.hold(*node, id))).await;
        let mut counts = BTreeMap::<_, (u64, u64)>::new();
        for ((node, id), (hold, outcome)) in lookups.into_iter().zip(outcomes) {
            let (count, granted) = counts.entry(id).or_default();
            *count += 1;
            match outcome {
                Ok(HoldOutcome::Granted) => {
                    *granted += 1;
                    self.open.push((node, id, hold));
                }
                Ok(_) => {}
                Err(error) if locked.contains(&id) && error.to_string().contains(&has_locked(id)) => {}
                Err(error) => return Err(format!("a hold of {id} fails: {error}")),
            }
        }
        for (id, (count, granted)) in counts {
            let expected = if locked.contains(&id) { 0 } else { count.min(self.available[id]) };
            if granted != expected {
                return Err(format!("{granted} of {count} holds of {id} are granted instead of {expected}"));
            }
            *self.available.get_mut(id).unwrap() -= granted;
        }
        Ok(())
    }

    /// Places a hold. Repeats it, as a client does, while the machine is too slow to return credits in time.
    async fn hold(&self, node: usize, id: &str) -> (Hold, Result<HoldOutcome, PortError>) {
        let node = &self.nodes[node];
        let mut attempts = 0;
        loop {
            let hold = self.world.lookup_of(node, id);
            let outcome = node.ledger.hold(&hold).await;
            attempts += 1;
            match &outcome {
                Err(error) if error.to_string().contains("returned in time") && attempts < 20 => {}
                _ => return (hold, outcome),
            }
        }
    }

    /// Waits until each node has found that workspaces are not locked any more.
    async fn are_held_again(&self, ids: &[&str]) {
        for (node, id) in (0..self.nodes.len()).flat_map(|node| ids.iter().map(move |id| (node, *id))) {
            eventually("it is held again", async || {
                let (hold, outcome) = self.hold(node, id).await;
                if matches!(outcome, Ok(HoldOutcome::Granted)) {
                    self.nodes[node].ledger.settle(&hold, Settlement::Release).await.unwrap();
                }
                outcome.is_ok()
            })
            .await;
        }
    }
}
