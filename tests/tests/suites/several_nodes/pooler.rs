//! Nodes behind PgBouncer in transaction mode, which executes each transaction on any of its connections.

use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::ports::Keys;
use enrich_lib::resolver::OptOuts;
use enrich_postgres::{People, PeopleAdmin};
use enrich_store::EmailHasher;
use enrich_tests::eventually;
use enrich_tests::servers::{Pooler, Postgres};

use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_credits_keys_and_people_through_a_pooler() {
    let postgres = Postgres::start();
    let world = World::on(&postgres, 300).await;
    let pooler = Pooler::start(postgres.port());
    let key = world.key(1).await;
    let url = pooler.url(&world.database);
    let timeout = Duration::from_secs(5);
    let nodes = [world.node_at(&url, timeout).await, world.node_at(&url, timeout).await];
    let hasher = EmailHasher::new([7; 16]);
    let ada = Email::parse("ada@posteo.net").unwrap();
    let people = People::open(url.parse().unwrap(), timeout, hasher.clone(), 0.8).await.unwrap();
    assert!(!people.contains(&ada).await.unwrap());
    let mut admin = PeopleAdmin::open(&postgres.server(&world.database), hasher).await.unwrap();
    admin.opt_out(std::slice::from_ref(&ada)).await.unwrap();
    assert!(people.contains(&ada).await.unwrap());
    for _ in 0..5 {
        let lookups = nodes.iter().flat_map(|node| (0..32).map(|_| world.spend(node)));
        let spent = futures_util::future::join_all(lookups).await;
        assert!(spent.into_iter().all(|spent| spent.is_ok()));
    }
    assert_eq!(world.totals().await, [300, 300, 0]);
    for node in &nodes {
        assert!(node.ledger.find(&key.digest()).await.unwrap().is_some());
    }
    world.update_key(&key, "revoked_at = 0").await;
    for node in &nodes {
        eventually("the key is refused", async || !node.accepts(&key).await.unwrap()).await;
        node.ledger.close().await.unwrap();
    }
    let available = "SELECT available, (SELECT count(*) FROM settlement) FROM balance";
    assert_eq!(world.numbers(available).await, [0, 0]);
}
