//! A person who opts out is suppressed on all nodes within a second, and a node that cannot know fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::OptOuts;
use enrich_postgres::{PostgresError, SharedOptOuts};
use enrich_store::{EmailHasher, OptOut};
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::Postgres;
use tokio::time::{Instant, sleep_until};

use super::world::{Network, TIMEOUT, World, within_a_second};

/// The opt-outs of one node.
struct Node {
    opt_outs: SharedOptOuts,
    network: Network,
    /// All changes that the node was notified of.
    changes: Arc<Mutex<Vec<OptOut>>>,
}

impl Node {
    async fn start(world: &World<'_>) -> Self {
        world.opt_outs().await.check_people_key(&hasher()).await.unwrap();
        Self::with_key(world, hasher()).await.unwrap()
    }

    async fn with_key(world: &World<'_>, hasher: EmailHasher) -> Result<Self, PostgresError> {
        Self::with_limit(world, hasher, TIMEOUT).await
    }

    /// Starts with this limit for one statement.
    async fn with_limit(
        world: &World<'_>,
        hasher: EmailHasher,
        limit: Duration,
    ) -> Result<Self, PostgresError> {
        let network = Network::new(world.postgres);
        let server = world.postgres.server(&world.database).through(network.clone());
        let changes = Arc::new(Mutex::new(Vec::new()));
        let taken = changes.clone();
        let take = move |changes| taken.lock().unwrap().extend::<Vec<_>>(changes);
        let opt_outs = SharedOptOuts::open(server, limit, hasher, take).await?;
        Ok(Self { opt_outs, network, changes })
    }

    async fn suppresses(&self, name: &str) -> Result<bool, PortError> {
        self.opt_outs.contains(&email(name)).await
    }

    async fn eventually(&self, name: &str, is_suppressed: bool) {
        eventually(name, async || self.suppresses(name).await.is_ok_and(|is| is == is_suppressed)).await;
    }
}

fn hasher() -> EmailHasher {
    EmailHasher::new([7; 16])
}

fn email(name: &str) -> Email {
    Email::parse(&format!("{name}@posteo.net")).unwrap()
}

async fn suppress(world: &World<'_>, name: &str) {
    assert_eq!(world.opt_outs().await.suppress(&hasher(), &[email(name)]).await.unwrap(), 1);
}

async fn unsuppress(world: &World<'_>, name: &str) {
    assert_eq!(world.opt_outs().await.unsuppress(&hasher(), &[email(name)]).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_honours_an_opt_out_and_its_withdrawal_within_a_second() {
    let world = World::new().await;
    let nodes = [Node::start(&world).await, Node::start(&world).await];
    for node in &nodes {
        assert!(!node.suppresses("ada").await.unwrap());
    }
    for is_suppressed in [true, false, true] {
        if is_suppressed {
            suppress(&world, "ada").await
        } else {
            unsuppress(&world, "ada").await
        };
        within_a_second("the change is honoured", async || {
            for node in &nodes {
                node.eventually("ada", is_suppressed).await;
                assert!(!node.suppresses("bea").await.unwrap());
            }
        })
        .await;
    }
    let same = Email::parse("Ada+news@POSTEO.net").unwrap();
    assert!(nodes[0].opt_outs.contains(&same).await.unwrap(), "all addresses of a person are one opt-out");
    let changes = nodes[0].changes.lock().unwrap();
    assert_eq!(changes.iter().map(|change| change.is_withdrawn).collect::<Vec<_>>(), [false, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn opt_outs_apply_from_the_start_of_a_node() {
    let world = World::new().await;
    world.opt_outs().await.check_people_key(&hasher()).await.unwrap();
    suppress(&world, "ada").await;
    let node = Node::start(&world).await;
    assert!(node.suppresses("ada").await.unwrap());
    assert_eq!(node.changes.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_node_fails_after_a_second_and_reads_what_it_missed() {
    let world = World::new().await;
    let mut node = Node::start(&world).await;
    node.network.cut();
    suppress(&world, "ada").await;
    let opted_out_at = Instant::now();
    sleep_until(opted_out_at + Duration::from_secs(1)).await;
    let error = node.suppresses("ada").await.unwrap_err();
    assert!(error.to_string().contains("the opt-outs could not be read for more than a second"), "{error}");
    assert!(node.suppresses("bea").await.is_err(), "it cannot know who opted out");
    node.network.heal();
    node.eventually("ada", true).await;
    node.eventually("bea", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_recovers_from_a_restart_of_the_server() {
    let mut postgres = Postgres::start();
    let database = postgres.create_database().await;
    let node = Node::start(&World::in_database(&postgres, database.clone())).await;
    postgres.kill();
    eventually("it fails", async || node.suppresses("ada").await.is_err()).await;
    postgres.restart();
    // Its notification has no listener, if the node has not connected again.
    suppress(&World::in_database(&postgres, database.clone()), "ada").await;
    node.eventually("ada", true).await;
    suppress(&World::in_database(&postgres, database), "bea").await;
    node.eventually("bea", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_commits_late_is_not_missed() {
    let world = World::new().await;
    let node = Node::start(&world).await;
    let late = world.postgres.client(&world.database).await;
    let call = "SELECT change_opt_outs($1, $2, $3, NULL)";
    let (key, ada) = (hasher().fingerprint().to_vec(), hasher().opt_out_hash(&email("ada")).to_vec());
    late.batch_execute("BEGIN").await.unwrap();
    late.query(call, &[&key, &vec![ada], &vec![false]]).await.unwrap();
    let world = Arc::new(world);
    let other = tokio::spawn({
        let world = world.clone();
        async move { suppress(&world, "bea").await }
    });
    let is_waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the other change waits or is read", async || {
        world.postgres.numbers(&world.database, is_waiting).await == [1]
            || node.suppresses("bea").await.unwrap_or(false)
    })
    .await;
    late.batch_execute("COMMIT").await.unwrap();
    other.await.unwrap();
    node.eventually("ada", true).await;
    node.eventually("bea", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_reach_every_node() {
    const COMMANDS: usize = 8;
    const PEOPLE: usize = 40;
    let world = World::new().await;
    let nodes = [Node::start(&world).await, Node::start(&world).await];
    let server = world.postgres.server(&world.database);
    let commands = (0..COMMANDS).map(|command| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut admin = enrich_postgres::OptOutAdmin::open(&server).await.unwrap();
            for n in 0..PEOPLE {
                let person = email(&format!("p{}", (n + command) % (2 * PEOPLE)));
                admin.suppress(&hasher(), std::slice::from_ref(&person)).await.unwrap();
                if n % 4 == 0 {
                    admin.unsuppress(&hasher(), &[person]).await.unwrap();
                }
            }
        })
    });
    for command in commands.collect::<Vec<_>>() {
        command.await.unwrap();
    }
    let expected = world.opt_outs().await.opt_outs(&hasher()).await.unwrap();
    for node in &nodes {
        eventually("the same opt-outs", async || {
            let suppressed = expected.iter().filter(|change| !change.is_withdrawn).count();
            node.opt_outs.len() == suppressed
        })
        .await;
        for n in 0..2 * PEOPLE {
            let name = format!("p{n}");
            let hash = hasher().opt_out_hash(&email(&name));
            let is_suppressed =
                expected.iter().any(|change| change.email_hash == hash && !change.is_withdrawn);
            node.eventually(&name, is_suppressed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_100_000_opt_outs_once() {
    const PEOPLE: usize = 100_000;
    let world = World::new().await;
    let mut admin = world.opt_outs().await;
    admin.check_people_key(&hasher()).await.unwrap();
    let change = |n: usize| OptOut {
        email_hash: hasher().opt_out_hash(&email(&format!("p{n}"))),
        is_withdrawn: false,
        at: START,
    };
    let changes: Vec<_> = (0..PEOPLE).map(change).collect();
    admin.merge_opt_outs(&hasher(), &changes).await.unwrap();
    let started = Instant::now();
    // A page of 10,000 rows takes longer than usual while other tests use the same server.
    let node = Node::with_limit(&world, hasher(), Duration::from_secs(5)).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(node.opt_outs.len(), PEOPLE);
    assert!(node.suppresses("p99999").await.unwrap() && !node.suppresses("ada").await.unwrap());
    suppress(&world, "ada").await;
    node.eventually("ada", true).await;
    let read = node.changes.lock().unwrap().len();
    assert_eq!(read, PEOPLE + 1, "a refresh reads only changes");
    admin.merge_opt_outs(&hasher(), &changes).await.unwrap();
    suppress(&world, "bea").await;
    node.eventually("bea", true).await;
    assert_eq!(node.changes.lock().unwrap().len(), read + 1, "a merge of known opt-outs changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_applies_the_later_change_of_each_person() {
    let world = World::new().await;
    let node = Node::start(&world).await;
    let mut admin = world.opt_outs().await;
    let change = |is_withdrawn, seconds| {
        let at = START + Duration::from_secs(seconds);
        [OptOut { email_hash: hasher().opt_out_hash(&email("ada")), is_withdrawn, at }]
    };
    admin.merge_opt_outs(&hasher(), &change(true, 9)).await.unwrap();
    assert_eq!(admin.opt_out(&hasher(), &email("ada")).await.unwrap(), None, "there is nothing to withdraw");
    for (given, expected) in [
        (change(false, 5), change(false, 5)),
        (change(true, 4), change(false, 5)),
        (change(true, 6), change(true, 6)),
        (change(false, 5), change(true, 6)),
        (change(false, 7), change(false, 7)),
    ] {
        admin.merge_opt_outs(&hasher(), &given).await.unwrap();
        assert_eq!(admin.opt_outs(&hasher()).await.unwrap(), expected);
        node.eventually("ada", !expected[0].is_withdrawn).await;
    }
    unsuppress(&world, "ada").await;
    node.eventually("ada", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_hashes_of_another_key() {
    let world = World::new().await;
    let mut admin = world.opt_outs().await;
    assert!(!admin.has_people_key().await.unwrap());
    assert!(matches!(admin.suppress(&hasher(), &[email("ada")]).await, Err(PostgresError::PeopleKey)));
    let node = Node::start(&world).await;
    assert!(admin.has_people_key().await.unwrap());
    let other = EmailHasher::new([8; 16]);
    let people = [email("ada")];
    for refused in [
        admin.check_people_key(&other).await,
        admin.suppress(&other, &people).await.map(drop),
        admin.unsuppress(&other, &people).await.map(drop),
        admin.opt_out(&other, &people[0]).await.map(drop),
        admin.opt_outs(&other).await.map(drop),
        Node::with_key(&world, other.clone()).await.map(drop),
    ] {
        assert!(matches!(refused, Err(PostgresError::PeopleKey)), "{refused:?}");
    }
    assert!(!node.suppresses("ada").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_reads_all_opt_outs_again_if_the_database_lost_changes() {
    let world = World::new().await;
    let node = Node::start(&world).await;
    suppress(&world, "ada").await;
    world.sql("CREATE TABLE replicated AS SELECT last_change FROM opt_out_list").await;
    suppress(&world, "bea").await;
    unsuppress(&world, "ada").await;
    node.eventually("bea", true).await;
    node.eventually("ada", false).await;
    // As after a failover to a standby without the last two changes.
    world
        .sql(
            "BEGIN; DELETE FROM opt_out WHERE change > (SELECT last_change FROM replicated) AND NOT is_withdrawn;
             UPDATE opt_out o SET is_withdrawn = false, change = r.last_change FROM replicated r;
             UPDATE opt_out_list l SET last_change = r.last_change FROM replicated r; COMMIT",
        )
        .await;
    node.eventually("ada", true).await;
    node.eventually("bea", false).await;
    // New changes have new numbers.
    suppress(&world, "bea").await;
    node.eventually("bea", true).await;
}
