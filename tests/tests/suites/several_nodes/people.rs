//! All nodes find the same people, and honour opt-outs at once.

use std::cell::Cell;
use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::model::{LookupId, ProfileUrl};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::resolver::OptOuts;
use enrich_postgres::{People, PeopleAdmin, PostgresError, Schema};
use enrich_store::{EmailHasher, Imported, PeopleStats, RemovalLimit};
use enrich_tests::servers::Postgres;
use futures_util::future::join_all;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::world::{World, demo};

const CONFIDENCE_MIN: f64 = 0.8;

/// The timeout of a statement. Long, because many tests run at the same time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the people of a node.
async fn node(world: &World<'_>) -> People {
    People::open(world.server(), TIMEOUT, hasher(), CONFIDENCE_MIN).await.unwrap()
}

async fn find(node: &People, address: &str) -> Option<String> {
    let email = Email::parse(address).unwrap();
    let query = Query::new(LookupId::from_bytes([0; 16]), demo(), email);
    let found = node.find(&query).await.unwrap();
    found.profile.map(|profile| profile.name().to_owned())
}

fn hasher() -> EmailHasher {
    EmailHasher::new([7; 16])
}

fn email(name: &str) -> Email {
    Email::parse(&format!("{name}@posteo.net")).unwrap()
}

async fn admin(world: &World<'_>) -> PeopleAdmin {
    PeopleAdmin::open(&world.postgres.server(&world.database), hasher()).await.unwrap()
}

/// Imports these addresses and profiles.
async fn import(admin: &mut PeopleAdmin, rows: &[(&str, &str, f64)], replaces: bool) -> Imported {
    let mut import = admin.import().await.unwrap();
    for (address, profile, confidence) in rows {
        let profile = ProfileUrl::from_name(profile).unwrap();
        import.add(&Email::parse(address).unwrap(), &profile, *confidence).await.unwrap();
    }
    import.finish(replaces.then_some(RemovalLimit::Percent(100))).await.unwrap()
}

fn counts(changed: u64, unchanged: u64, removed: u64) -> Imported {
    Imported { changed, unchanged, removed, refused: None }
}

const ADA: (&str, &str, f64) = ("ada@posteo.net", "ada", 0.9);

#[tokio::test(flavor = "multi_thread")]
async fn import_replaces_all_people_at_once_under_lookups() {
    const PEOPLE: usize = 1_000;
    const VERSIONS: usize = 4;
    let world = World::new().await;
    let (mut admin, node) = (admin(&world).await, node(&world).await);
    // Each version has one person of its own.
    let versions = (0..VERSIONS).map(|version| {
        let people = (0..PEOPLE).map(|n| format!("p{n}@posteo.net"));
        let people = people.chain([format!("only{version}@posteo.net")]);
        (format!("v{version}"), people.collect::<Vec<_>>())
    });
    let versions: Vec<_> = versions.collect();
    let mut replace = async |version: usize| {
        let (profile, people) = &versions[version];
        let rows: Vec<_> = people.iter().map(|address| (address.as_str(), profile.as_str(), 1.0)).collect();
        import(&mut admin, &rows, true).await
    };
    replace(0).await;
    let rounds = Cell::new(0);
    let importing = async {
        for version in 1..VERSIONS {
            while rounds.get() < version {
                yield_now().await;
            }
            let count = PEOPLE as u64 + 1;
            assert_eq!(replace(version).await, counts(count, 0, 1));
        }
    };
    let version_of = async |address: &str| {
        let profile = find(&node, address).await?;
        Some(profile[1..].parse::<usize>().unwrap())
    };
    let looking = async {
        let mut seen = 0;
        // The last version is seen after the last import.
        while seen < VERSIONS - 1 {
            for address in ["p0@posteo.net", "p999@posteo.net", "p500@posteo.net"] {
                let version = version_of(address).await.unwrap();
                assert!(version >= seen, "{address}: {version} after {seen}");
                seen = version;
            }
            if seen > 0 {
                let before = format!("only{}@posteo.net", seen - 1);
                assert_eq!(version_of(&before).await, None, "the person is removed");
            }
            rounds.set(rounds.get() + 1);
        }
    };
    tokio::join!(importing, looking);
}

#[tokio::test(flavor = "multi_thread")]
async fn opt_out_during_an_import_applies_at_once_and_leaves_no_record() {
    let world = World::new().await;
    let (mut importer, mut operator, node) = (admin(&world).await, admin(&world).await, node(&world).await);
    import(&mut importer, &[ADA], false).await;
    let mut running = importer.import().await.unwrap();
    for name in ["ada", "bea", "eve"] {
        running.add(&email(name), &ProfileUrl::from_name("new").unwrap(), 0.9).await.unwrap();
    }
    assert_eq!(operator.opt_out(&[email("ada")]).await.unwrap(), 1, "it does not wait for the import");
    assert_eq!(find(&node, ADA.0).await, None);
    // The merge does not see this opt-out. The import waits for its commit when it locks the opt-outs.
    let eve = u128::from_be_bytes(hasher().opt_out_hash(&email("eve")));
    let opting_out = world.begin(&format!("INSERT INTO opt_out VALUES ('\\x{eve:032x}', false, 0)")).await;
    let committing = async {
        world.statement_waits_for_a_lock().await;
        opting_out.batch_execute("COMMIT").await.unwrap();
    };
    let (imported, ()) = tokio::join!(running.finish(None), committing);
    assert_eq!(imported.unwrap(), counts(2, 1, 0));
    assert_eq!(operator.stats(0.8).await.unwrap(), PeopleStats { people: 1, untrusted: 0, opt_outs: 2 });

    // An import that has merged its rows, and locks the opt-outs until its commit.
    let merging = "UPDATE person SET profile = 'newer'; LOCK TABLE opt_out IN SHARE MODE";
    let merged = world.begin(merging).await;
    let opt_out = tokio::spawn(async move { (operator.opt_out(&[email("bea")]).await.unwrap(), operator) });
    world.statement_waits_for_a_lock().await;
    merged.batch_execute("COMMIT").await.unwrap();
    let (changed, mut operator) = opt_out.await.unwrap();
    assert_eq!((changed, operator.stats(0.8).await.unwrap().people), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn import_deletes_the_record_of_a_person_who_opts_out_while_it_merges() {
    for commits in [true, false] {
        let world = World::new().await;
        let (mut importer, mut operator) = (admin(&world).await, admin(&world).await);
        import(&mut importer, &[ADA], false).await;
        let mut running = importer.import().await.unwrap();
        running.add(&email("ada"), &ProfileUrl::from_name("new").unwrap(), 0.9).await.unwrap();
        // The merge waits for this lock, after it has read the opt-outs.
        let blocking = world.begin("SELECT FROM person FOR UPDATE").await;
        let opting_out = async {
            world.statement_waits_for_a_lock().await;
            let locked = operator.opt_out(&[email("ada")]).await;
            assert!(matches!(locked, Err(PostgresError::RecordsLocked(1))), "{locked:?}");
            if !commits {
                world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").await;
            }
            blocking.batch_execute("COMMIT").await.unwrap();
        };
        let (imported, ()) = tokio::join!(running.finish(None), opting_out);
        assert_eq!(imported.ok(), commits.then(|| counts(1, 0, 0)));
        let stats = |people| PeopleStats { people, untrusted: 0, opt_outs: 1 };
        assert_eq!(operator.stats(0.8).await.unwrap(), stats(u64::from(!commits)));
        assert_eq!(operator.opt_out(&[email("ada")]).await.unwrap(), 0);
        assert_eq!(operator.stats(0.8).await.unwrap(), stats(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_hashes_of_another_key() {
    let world = World::new().await;
    let server = world.postgres.server(&world.database);
    // Nodes that start at the same time, and run when the database is replaced by another one.
    let nodes = join_all((0..4).map(|_| node(&world))).await;
    let change = "UPDATE people_key SET fingerprint = set_byte(fingerprint, 0, get_byte(fingerprint, 0) # 1)";
    let delete = "CREATE TABLE kept AS TABLE people_key; DELETE FROM people_key";
    let restore = "INSERT INTO people_key TABLE kept";
    for (replacement, is_same) in [(change, false), (change, true), (delete, true), (restore, true)] {
        world.sql(replacement).await;
        // It does not repeat the statement until its deadline of 5 s.
        let found = timeout(Duration::from_secs(4), nodes[0].contains(&email("ada"))).await.unwrap();
        let found = found.map_err(|error| format!("{error:?}").contains("another `people.key`"));
        assert_eq!(found, if is_same { Ok(false) } else { Err(true) }, "after {replacement}");
    }
    let other = EmailHasher::new([8; 16]);
    // A command that only reads stores no key.
    let empty = World::new().await;
    let typo = PeopleAdmin::open(&empty.postgres.server(&empty.database), other.clone()).await;
    assert_eq!(typo.unwrap().stats(0.8).await.unwrap().people, 0);
    admin(&empty).await.opt_out(&[email("ada")]).await.unwrap();
    for refused in [
        PeopleAdmin::open(&empty.postgres.server(&empty.database), other.clone()).await.map(drop),
        PeopleAdmin::open(&server, other.clone()).await.map(drop),
        People::open(server.clone(), TIMEOUT, other, CONFIDENCE_MIN).await.map(drop),
    ] {
        assert!(matches!(refused, Err(PostgresError::PeopleKey)), "{refused:?}");
    }
    admin(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_although_the_database_reads_backslashes_in_strings() {
    let postgres = Postgres::shared();
    let database = postgres.create_empty_database().await;
    let setting = format!("ALTER DATABASE {database} SET standard_conforming_strings = off");
    postgres.sql("postgres", &setting).await;
    Schema::new(postgres.server(&database)).migrate().await.unwrap();
    let mut admin = PeopleAdmin::open(&postgres.server(&database), hasher()).await.unwrap();
    assert_eq!(admin.opt_out(&[email("ada")]).await.unwrap(), 1);
    let mut accounts = enrich_postgres::accounts(&postgres.server(&database)).await.unwrap();
    assert_eq!(accounts.audit().await.unwrap().errors, [""; 0]);
}

/// As after a kill between the two statements of an opt-out.
#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_after_an_interrupted_opt_out_does_not_return_the_record() {
    let world = World::new().await;
    let (mut admin, node) = (admin(&world).await, node(&world).await);
    import(&mut admin, &[ADA], false).await;
    world.sql("CREATE TABLE kept AS SELECT * FROM person").await;
    assert_eq!(admin.opt_out(&[email("ada")]).await.unwrap(), 1);
    world.sql("INSERT INTO person SELECT * FROM kept").await;
    assert_eq!(admin.withdraw(&[email("ada")]).await.unwrap(), 1);
    assert_eq!(find(&node, ADA.0).await, None);
}
