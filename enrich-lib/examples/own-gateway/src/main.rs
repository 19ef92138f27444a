//! Serves the gateway: `DATABASE_URL=postgres://… LISTEN=127.0.0.1:8080 own-gateway`.

use std::env;
use std::error::Error;
use std::sync::Arc;

use own_gateway::database::{Database, connect_to};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = Arc::new(Database::new(connect_to(env::var("DATABASE_URL")?)));
    let listener = TcpListener::bind(env::var("LISTEN")?).await?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    own_gateway::run(listener, database, stop).await
}
