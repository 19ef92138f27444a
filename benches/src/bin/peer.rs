//! The peer: the service as an engineer would write it in a day, with axum and two transactions for each
//! lookup.
//!
//! One transaction holds a credit and one spends it. Both are durable, and each is a single statement. It
//! neither counts requests nor returns the credits of holds that a crash leaves.

use std::error::Error;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use axum::{Json, Router};
use deadpool_postgres::{Manager, Pool};
use enrich_benches::dataset::{self, Keys, PEOPLE};
use enrich_benches::memory::CREDITS;
use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::key::KeyDigest;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

const SCHEMA: &str = "
    CREATE TABLE workspace (id bigint PRIMARY KEY, credits bigint NOT NULL CHECK (credits >= 0));
    CREATE TABLE api_key (digest bytea PRIMARY KEY, workspace bigint NOT NULL REFERENCES workspace);
    CREATE TABLE person (email text PRIMARY KEY, profile text NOT NULL);
    CREATE TABLE hold (lookup bytea PRIMARY KEY, workspace bigint NOT NULL, at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE spend (lookup bytea PRIMARY KEY, workspace bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())";
const KEY: &str = "SELECT workspace FROM api_key WHERE digest = $1";
const HOLD: &str = "
    WITH held AS (UPDATE workspace SET credits = credits - 1 WHERE id = $1 AND credits >= 1 RETURNING id)
    INSERT INTO hold (lookup, workspace) SELECT $2, id FROM held";
const PERSON: &str = "SELECT profile FROM person WHERE email = $1";
const SPEND: &str = "
    WITH held AS (DELETE FROM hold WHERE lookup = $1 RETURNING workspace)
    INSERT INTO spend (lookup, workspace) SELECT $1, workspace FROM held";
const RELEASE: &str = "
    WITH held AS (DELETE FROM hold WHERE lookup = $1 RETURNING workspace)
    UPDATE workspace w SET credits = credits + 1 FROM held h WHERE w.id = h.workspace";

/// The maximum number of connections.
const CONNECTIONS: usize = 16;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
#[allow(clippy::print_stderr, reason = "the launcher reads the address from stderr")]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::var("DATABASE_URL")?.parse()?;
    let pool = Pool::builder(Manager::new(database, NoTls)).max_size(CONNECTIONS).build()?;
    create(&pool).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("serving http://{}", listener.local_addr()?);
    let routes = Router::new().route(enrich_lib::wire::PATH, post(enrich)).with_state(pool);
    Ok(axum::serve(listener, routes).await?)
}

/// Creates the tables, a workspace with its key, and the people.
async fn create(pool: &Pool) -> Result<(), Box<dyn Error>> {
    let client = pool.get().await?;
    client.batch_execute(SCHEMA).await?;
    client.execute("INSERT INTO workspace VALUES (1, $1)", &[&CREDITS.cast_signed()]).await?;
    let digest = Keys::default().main.digest();
    client.execute("INSERT INTO api_key VALUES ($1, 1)", &[&&digest.as_bytes()[..]]).await?;
    let (emails, profiles): (Vec<_>, Vec<_>) =
        (0..PEOPLE).map(|person| (dataset::email(person), dataset::profile(person))).unzip();
    let insert = "INSERT INTO person SELECT * FROM unnest($1::text[], $2::text[])";
    client.execute(insert, &[&emails, &profiles]).await?;
    Ok(client.batch_execute("ANALYZE").await?)
}

async fn enrich(
    State(pool): State<Pool>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let key = headers.get(header::AUTHORIZATION).and_then(|key| key.as_bytes().strip_prefix(b"Bearer "));
    let (status, reply) = match (key, body["email"].as_str()) {
        (None, _) => (StatusCode::UNAUTHORIZED, json!({ "error": "unauthorized" })),
        (_, None) => (StatusCode::BAD_REQUEST, json!({ "error": "invalid_request" })),
        (Some(key), Some(email)) => look_up(&pool, key, email)
            .await
            .unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": "server_error" }))),
    };
    (status, Json(reply))
}

async fn look_up(pool: &Pool, key: &[u8], email: &str) -> Result<(StatusCode, Value), Box<dyn Error>> {
    let (lookup, client) = (SystemArrivals.arrive().id, pool.get().await?);
    let id = &lookup.as_bytes()[..];
    let digest = KeyDigest::from_token(key);
    let find_key = client.prepare_cached(KEY).await?;
    let Some(key) = client.query_opt(&find_key, &[&&digest.as_bytes()[..]]).await? else {
        return Ok((StatusCode::UNAUTHORIZED, json!({ "error": "unauthorized" })));
    };
    if client.execute(&client.prepare_cached(HOLD).await?, &[&key.get::<_, i64>(0), &id]).await? == 0 {
        return Ok((StatusCode::PAYMENT_REQUIRED, json!({ "error": "insufficient_credits" })));
    }
    let Some(person) = client.query_opt(&client.prepare_cached(PERSON).await?, &[&email]).await? else {
        client.execute(&client.prepare_cached(RELEASE).await?, &[&id]).await?;
        return Ok((
            StatusCode::NOT_FOUND,
            json!({ "lookup_id": lookup.to_string(), "status": "not_found" }),
        ));
    };
    client.execute(&client.prepare_cached(SPEND).await?, &[&id]).await?;
    let url = format!("https://www.linkedin.com/in/{}", person.get::<_, &str>(0));
    let found =
        json!({ "lookup_id": lookup.to_string(), "status": "found", "profile": { "linkedin_url": url } });
    Ok((StatusCode::OK, found))
}
