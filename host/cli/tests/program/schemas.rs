//! The schemas of both databases: statements of `enrich_store::accounts` run on either, and `copy` writes the
//! columns of one into the other.

use std::collections::{BTreeMap, BTreeSet};

use enrich_sqlite::{DataDir, accounts};
use enrich_tests::servers::Postgres;
use rusqlite::Connection;
use tempfile::TempDir;

/// A column: its table and name, its type, and whether it may be NULL.
type Columns = BTreeMap<(String, String), (Kind, bool)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Text,
    Bytes,
}

/// The columns of common tables that only one database needs.
const OWN: [(&str, &str); 6] = [
    // SQLite: the total that lags behind the spends. PostgreSQL keeps the balance in a table of its own.
    ("workspace", "spent"),
    ("workspace", "copied_spent"),
    // PostgreSQL: the last change of what nodes cache.
    ("workspace", "revision"),
    ("api_key", "revision"),
    // SQLite: the key of the only row.
    ("removed_until", "one"),
    ("migration", "version"),
];

fn sqlite() -> Columns {
    let files = TempDir::new().unwrap();
    let dir = DataDir::create(files.path()).unwrap();
    drop(accounts(&dir).unwrap());
    let db = Connection::open(files.path().join("accounts.db")).unwrap();
    let select = "SELECT t.name, c.name, c.type, c.\"notnull\" = 0 AND c.pk = 0
         FROM pragma_table_list t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' AND t.schema = 'main' AND t.name NOT LIKE 'sqlite_%'";
    let mut select = db.prepare(select).unwrap();
    let columns = select.query_map([], |row| {
        let kind = match &*row.get::<_, String>(2)? {
            "INTEGER" => Kind::Integer,
            "TEXT" => Kind::Text,
            "BLOB" => Kind::Bytes,
            other => panic!("unexpected type {other}"),
        };
        Ok(((row.get(0)?, row.get(1)?), (kind, row.get(3)?)))
    });
    columns.unwrap().collect::<Result<_, _>>().unwrap()
}

async fn postgres(tables: &BTreeSet<String>) -> Columns {
    let database = Postgres::shared().create_database().await;
    let select = "SELECT c.table_name::text, c.column_name::text, c.data_type::text, c.is_nullable = 'YES'
         FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
         WHERE t.table_type = 'BASE TABLE' AND t.table_schema = 'public' AND c.table_name::text = ANY ($1)";
    let tables: Vec<_> = tables.iter().collect();
    let rows = Postgres::shared().client(&database).await.query(select, &[&tables]).await.unwrap();
    let columns = rows.iter().map(|row| {
        let kind = match row.get(2) {
            "bigint" => Kind::Integer,
            "text" => Kind::Text,
            "bytea" => Kind::Bytes,
            other => panic!("unexpected type {other}"),
        };
        ((row.get(0), row.get(1)), (kind, row.get(3)))
    });
    columns.collect()
}

fn tables(columns: &Columns) -> BTreeSet<String> {
    columns.keys().map(|(table, _)| table.clone()).collect()
}

#[tokio::test]
async fn common_tables_have_the_same_columns() {
    let mut sqlite = sqlite();
    let mut postgres = postgres(&tables(&sqlite)).await;
    let common = tables(&postgres);
    assert!(common.len() >= 11, "{common:?}");
    for columns in [&mut sqlite, &mut postgres] {
        columns.retain(|(table, column), _| {
            common.contains(table) && !OWN.contains(&(table.as_str(), column.as_str()))
        });
    }
    for (column, sqlite) in &sqlite {
        assert_eq!(postgres.remove(column).as_ref(), Some(sqlite), "{column:?}");
    }
    assert!(postgres.is_empty(), "columns of PostgreSQL alone: {:?}", postgres.keys());
}
