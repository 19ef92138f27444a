//! Serves the gateway: `DATABASE_URL=postgres://… LISTEN=127.0.0.1:8080 RECEIPT_KEY=0f1e… own-gateway`. The key has
//! 32 random hexadecimal digits.

use std::env;
use std::error::Error;
use std::sync::Arc;

use enrich_lib::receipt::ReceiptKey;
use own_gateway::database::{Database, connect_to};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = Arc::new(Database::new(connect_to(env::var("DATABASE_URL")?)));
    let listener = TcpListener::bind(env::var("LISTEN")?).await?;
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    };
    let receipts = env::var("RECEIPT_KEY")?;
    if receipts.len() != 32 {
        return Err("RECEIPT_KEY needs 32 hexadecimal digits".into());
    }
    let receipts = u128::from_str_radix(&receipts, 16)?.to_be_bytes();
    own_gateway::run(listener, database, ReceiptKey::new(receipts), stop).await
}
