//! The server with any tables, over the real client.

use enrich_fakes::sql::SqlServer;
use tokio::io::duplex;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls};

const SCHEMA: &str =
    "CREATE TABLE account (id TEXT PRIMARY KEY, credits BIGINT NOT NULL CHECK (credits >= 0), mark BYTEA);
                      INSERT INTO account VALUES ('acme', 10, NULL)";

async fn connect(server: &SqlServer) -> Client {
    let (client, stream) = duplex(1_024);
    let server = server.clone();
    tokio::spawn(async move { server.serve(stream).await });
    let (client, connection) =
        Config::new().user("gateway").connect_raw(client, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn take(client: &Client, credits: i64) -> Result<u64, Error> {
    let sql = "UPDATE account SET credits = credits - $2 WHERE id = $1";
    client.execute_typed(sql, &[(&"acme", Type::TEXT), (&credits, Type::INT8)]).await
}

async fn credits(client: &Client) -> i64 {
    client.query_typed_one("SELECT credits FROM account", &[]).await.expect("an account").get(0)
}

#[tokio::test]
async fn rows_and_values_of_all_types_arrive() {
    let client = connect(&SqlServer::new(SCHEMA).unwrap()).await;
    let sql = "UPDATE account SET mark = $2, credits = credits + $1 RETURNING id, credits, mark";
    let row =
        client.query_typed_one(sql, &[(&5_i64, Type::INT8), (&&[1_u8, 2][..], Type::BYTEA)]).await.unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), ("acme", 15_i64, &[1_u8, 2][..]));
    let none = client.query_typed("SELECT id FROM account WHERE id = $1", &[(&"other", Type::TEXT)]).await;
    assert!(none.unwrap().is_empty());
}

#[tokio::test]
async fn transaction_is_visible_after_its_commit_and_excludes_others() {
    let server = SqlServer::new(SCHEMA).unwrap();
    let (one, other) = (connect(&server).await, connect(&server).await);
    one.batch_execute("BEGIN").await.unwrap();
    assert_eq!(take(&one, 3).await.unwrap(), 1);
    let committed =
        || server.read(|db| db.query_row("SELECT credits FROM account", [], |row| row.get::<_, i64>(0)));
    assert_eq!(committed().unwrap(), 10);
    let (waited, _) = tokio::join!(take(&other, 4), async { one.batch_execute("COMMIT").await.unwrap() });
    assert_eq!(waited.unwrap(), 1);
    assert_eq!(committed().unwrap(), 3);
}

#[tokio::test]
async fn failed_and_abandoned_transactions_are_rolled_back() {
    let server = SqlServer::new(SCHEMA).unwrap();
    let failing = connect(&server).await;
    failing.batch_execute("BEGIN").await.unwrap();
    take(&failing, 3).await.unwrap();
    take(&failing, 100).await.unwrap_err();
    take(&failing, 1).await.unwrap_err();
    failing.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(credits(&failing).await, 10);
    failing.batch_execute("BEGIN").await.unwrap();
    take(&failing, 3).await.unwrap();
    drop(failing);
    assert_eq!(credits(&connect(&server).await).await, 10);
}

#[tokio::test(start_paused = true)]
async fn transaction_of_a_silent_client_is_rolled_back() {
    let server = SqlServer::new(SCHEMA).unwrap();
    let silent = connect(&server).await;
    silent.batch_execute("BEGIN").await.unwrap();
    take(&silent, 3).await.unwrap();
    assert_eq!(credits(&connect(&server).await).await, 10);
    take(&silent, 3).await.unwrap_err();
}
