//! The contract of resolvers, and random operations on people, for SQLite and PostgreSQL.

use std::sync::Arc;

use enrich_contract::resolver::ResolverUnderTest;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_store::{Imported, PeopleStats, RemovalLimit};
use enrich_tests::contract::people::{CONFIDENCE_MIN, End, PeopleStore, Row, compare};

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
    use enrich_contract::START;
    use enrich_lib::query::Query;
    use enrich_lib::refusal::PortError;
    use enrich_lib::resolver::Answer;
    use enrich_sqlite::{DataDir, ImportLimits, People};
    use tempfile::TempDir;

    enrich_contract::resolver_contract!(open);

    #[test]
    fn random_operations_on_people_match_the_model() {
        compare(64, 250, async || Directory::new(TempDir::new().unwrap()));
    }

    /// So small that the rows of one mailbox are in several chunks and batches.
    const LIMITS: ImportLimits = ImportLimits {
        first_chunk_rows: 7,
        chunk_rows_max: 100,
        chunk_name_bytes_max: 500,
        batch_rows: 5,
        log_bytes_max: 1 << 20,
    };

    struct Directory {
        people: People,
        files: TempDir,
    }

    impl Directory {
        fn new(files: TempDir) -> Self {
            let dir = DataDir::create(files.path()).unwrap();
            Self { people: People::open(&dir, CONFIDENCE_MIN, rand::random()).unwrap(), files }
        }
    }

    #[async_trait]
    impl Resolver for Directory {
        async fn find(&self, query: &Query) -> Result<Answer, PortError> {
            self.people.find(query).await
        }
    }

    #[async_trait]
    impl PeopleStore for Directory {
        async fn import(&mut self, rows: &[Row], removal: Option<RemovalLimit>, end: End) -> Imported {
            let mut import = self.people.start_import(LIMITS, removal).unwrap();
            for (email, profile, confidence) in rows {
                import.add(email, profile, *confidence).unwrap();
            }
            let done = match end {
                End::Dropped => Imported::default(),
                end => import.finish_if(move || end == End::Finished).unwrap(),
            };
            self.people.refresh().unwrap();
            done
        }

        async fn change(&mut self, emails: &[Email], is_withdrawn: bool) -> u64 {
            let change = if is_withdrawn { People::withdraw } else { People::opt_out };
            let changed = change(&self.people, emails, START).unwrap();
            self.people.refresh().unwrap();
            changed
        }

        async fn find(&self, email: &Email) -> (Option<ProfileUrl>, bool) {
            (self.people.get(email).unwrap(), self.people.has_opted_out(email).unwrap())
        }

        async fn stats(&mut self) -> PeopleStats {
            self.people.stats().unwrap()
        }

        async fn reopen(self) -> Self {
            let Self { people, files } = self;
            drop(people);
            Self::new(files)
        }
    }

    async fn open() -> ResolverUnderTest {
        let mut directory = Directory::new(TempDir::new().unwrap());
        let (email, profile) = ada();
        directory.import(&[(email, profile, 1.0)], None, End::Finished).await;
        under_test(Arc::new(directory))
    }
}

#[cfg(feature = "servers")]
mod postgres {
    use std::time::Duration;

    use super::*;
    use async_trait::async_trait;
    use enrich_lib::model::LookupId;
    use enrich_lib::query::Query;
    use enrich_lib::resolver::OptOuts;
    use enrich_postgres::{People, PeopleAdmin};
    use enrich_store::EmailHasher;
    use enrich_tests::servers::Postgres;

    enrich_contract::resolver_contract!(open);

    #[test]
    fn random_operations_on_people_match_the_model() {
        compare(24, 2_500, async || Database::open(Postgres::shared().create_database().await).await);
    }

    /// A database, its operator and two nodes.
    struct Database {
        name: String,
        admin: PeopleAdmin,
        nodes: [People; 2],
    }

    impl Database {
        async fn open(name: String) -> Self {
            let (server, hasher) = (Postgres::shared().server(&name), EmailHasher::new([7; 16]));
            let admin = PeopleAdmin::open(&server, hasher.clone()).await.unwrap();
            // Long, because many tests run at the same time.
            let node = async || {
                People::open(server.clone(), Duration::from_secs(10), hasher.clone(), CONFIDENCE_MIN).await
            };
            let nodes = [node().await.unwrap(), node().await.unwrap()];
            Self { name, admin, nodes }
        }
    }

    #[async_trait]
    impl PeopleStore for Database {
        async fn import(&mut self, rows: &[Row], removal: Option<RemovalLimit>, end: End) -> Imported {
            let mut import = self.admin.import().await.unwrap();
            for (email, profile, confidence) in rows {
                import.add(email, profile, *confidence).await.unwrap();
            }
            match end {
                End::Dropped => Imported::default(),
                end => import.finish_if(removal, || end == End::Finished).await.unwrap(),
            }
        }

        async fn change(&mut self, emails: &[Email], is_withdrawn: bool) -> u64 {
            let changed = if is_withdrawn {
                self.admin.withdraw(emails).await
            } else {
                self.admin.opt_out(emails).await
            };
            changed.unwrap()
        }

        async fn find(&self, email: &Email) -> (Option<ProfileUrl>, bool) {
            let query = Query::new(LookupId::from_bytes([0; 16]), "demo".parse().unwrap(), email.clone());
            let find = async |node: &People| {
                (node.find(&query).await.unwrap().profile, node.contains(email).await.unwrap())
            };
            let [first, second] = [find(&self.nodes[0]).await, find(&self.nodes[1]).await];
            assert_eq!(first, second, "the nodes differ");
            first
        }

        async fn stats(&mut self) -> PeopleStats {
            self.admin.stats(CONFIDENCE_MIN).await.unwrap()
        }

        async fn reopen(self) -> Self {
            Self::open(self.name).await
        }
    }

    async fn open() -> ResolverUnderTest {
        let mut database = Database::open(Postgres::shared().create_database().await).await;
        let (email, profile) = ada();
        database.import(&[(email, profile, 1.0)], None, End::Finished).await;
        let [people, _] = database.nodes;
        under_test(Arc::new(people))
    }
}
