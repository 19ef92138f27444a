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
