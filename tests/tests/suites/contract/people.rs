//! The contract of resolvers for the people of SQLite and PostgreSQL.

use std::sync::Arc;

use enrich_contract::resolver::ResolverUnderTest;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;

/// A resolver that finds only [`ada`].
fn under_test(resolver: Arc<dyn Resolver>) -> ResolverUnderTest {
    ResolverUnderTest::new(resolver, ada(), Email::parse("nobody.here@posteo.net").unwrap())
}

fn ada() -> (Email, ProfileUrl) {
    (Email::parse("ada.marlowe@posteo.net").unwrap(), ProfileUrl::from_name("ada-marlowe").unwrap())
}

mod sqlite {
    use super::*;
    use async_trait::async_trait;
    use enrich_lib::query::Query;
    use enrich_lib::refusal::PortError;
    use enrich_lib::resolver::Answer;
    use enrich_sqlite::{DataDir, People};
    use tempfile::TempDir;

    enrich_contract::resolver_contract!(open);

    struct Directory {
        people: People,
        _files: TempDir,
    }

    #[async_trait]
    impl Resolver for Directory {
        async fn find(&self, query: &Query) -> Result<Answer, PortError> {
            self.people.find(query).await
        }
    }

    async fn open() -> ResolverUnderTest {
        let files = TempDir::new().unwrap();
        let dir = DataDir::create(files.path()).unwrap();
        let people = People::open(&dir, People::CONFIDENCE_MIN, [7; 16]).unwrap();
        let (mut import, (email, profile)) = (people.import().unwrap(), ada());
        import.add(&email, &profile, 1.0).unwrap();
        import.finish().unwrap();
        people.refresh().unwrap();
        under_test(Arc::new(Directory { people, _files: files }))
    }
}

/// Merges of the changes of several stores. All orders of up to three changes of a person at two times.
#[cfg(feature = "servers")]
mod merge {
    use enrich_lib::email::Email;
    use enrich_lib::model::Timestamp;
    use enrich_postgres::PeopleAdmin;
    use enrich_sqlite::{DataDir, People};
    use enrich_store::{EmailHash, EmailHasher, OptOut};
    use enrich_tests::servers::Postgres;
    use tempfile::TempDir;

    /// A time, and whether it is that of an opt-out. The larger of two changes applies.
    type Change = (u64, bool);

    const CHANGES: [Change; 4] = [(1, false), (1, true), (2, false), (2, true)];

    fn email(person: usize) -> Email {
        Email::parse(&format!("p{person}@posteo.net")).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_stores_apply_the_later_change_and_an_opt_out_at_the_same_time() {
        let files = TempDir::new().unwrap();
        let people = People::open(&DataDir::create(files.path()).unwrap(), 0.8, [7; 16]).unwrap();
        let hasher = EmailHasher::new([7; 16]);
        let postgres = Postgres::shared();
        let server = postgres.server(&postgres.create_database().await);
        let mut admin = PeopleAdmin::open(&server, hasher.clone()).await.unwrap();
        let persons = CHANGES.len().pow(3);
        let change = |person: usize, round: u32| CHANGES[person / CHANGES.len().pow(round) % CHANGES.len()];
        let hash = |person| -> EmailHash { hasher.opt_out_hash(&email(person)) };
        for rounds in 1..=3 {
            let round = (0..persons).map(|person| {
                let (at, is_opt_out) = change(person, rounds - 1);
                let at = Timestamp::from_unix_ms(at);
                OptOut { email_hash: hash(person), is_withdrawn: !is_opt_out, at }
            });
            let round: Vec<_> = round.collect();
            people.merge_opt_outs(&round).unwrap();
            admin.merge_opt_outs(&round).await.unwrap();
            let expected = (0..persons).filter_map(|person| {
                let (at, is_opt_out) = (0..rounds).map(|round| change(person, round)).max()?;
                Some((Timestamp::from_unix_ms(at), hash(person), !is_opt_out))
            });
            let mut expected: Vec<_> = expected.collect();
            expected.sort();
            for opt_outs in [people.opt_outs().unwrap(), admin.opt_outs().await.unwrap()] {
                let opt_outs =
                    opt_outs.iter().map(|change| (change.at, change.email_hash, change.is_withdrawn));
                assert_eq!(opt_outs.collect::<Vec<_>>(), expected);
            }
        }
        // A command of an operator applies, whatever the clocks show.
        let opted_out =
            people.opt_outs().unwrap().iter().filter(|change| !change.is_withdrawn).count() as u64;
        let emails: Vec<_> = (0..persons).map(email).collect();
        assert_eq!(people.withdraw(&emails, Timestamp::from_unix_ms(0)).unwrap(), opted_out);
        assert_eq!(admin.withdraw(&emails).await.unwrap(), opted_out);
        assert_eq!(people.opt_out(&emails, Timestamp::from_unix_ms(0)).unwrap(), persons as u64);
        assert_eq!(admin.opt_out(&emails).await.unwrap(), persons as u64);
    }
}

#[cfg(feature = "servers")]
mod postgres {
    use std::time::Duration;

    use super::*;
    use enrich_postgres::{People, PeopleAdmin};
    use enrich_store::EmailHasher;
    use enrich_tests::servers::Postgres;

    enrich_contract::resolver_contract!(open);

    async fn open() -> ResolverUnderTest {
        let database = Postgres::shared().create_database().await;
        let (server, hasher) = (Postgres::shared().server(&database), EmailHasher::new([7; 16]));
        let mut admin = PeopleAdmin::open(&server, hasher.clone()).await.unwrap();
        let (mut import, (email, profile)) = (admin.import().await.unwrap(), ada());
        import.add(&email, &profile, 1.0).await.unwrap();
        import.finish(None).await.unwrap();
        // Long, because many tests run at the same time.
        let people = People::open(server, Duration::from_secs(10), hasher, 0.8).await.unwrap();
        under_test(Arc::new(people))
    }
}
