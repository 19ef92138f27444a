//! The setup of the examples: one workspace with 1,000 credits and one person, in memory.

use std::error::Error;
use std::sync::{Arc, LazyLock};

use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::ProfileUrl;
use enrich_lib::window::{Quota, Workspace};
use tokio::net::TcpListener;

pub(crate) fn service() -> Result<Service, Box<dyn Error>> {
    let demo = Workspace::new("demo".parse()?, Quota::default());
    let (keys, windows) = (Arc::new(KeyTable::default()), Arc::new(WindowTable::default()));
    let (credits, people) = (Arc::new(AccountTable::default()), Arc::new(Directory::default()));
    credits.grant(&demo.id, 1_000)?;
    keys.insert(key().digest(), demo);
    people.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
    Ok(Service::new(keys, windows, credits, people))
}

/// Returns the key of the workspace, which is generated once.
pub(crate) fn key() -> &'static ApiKey {
    static KEY: LazyLock<ApiKey> = LazyLock::new(|| ApiKey::generate(rand::random));
    &KEY
}

/// Listens on the address of the first argument, or on a free port, and prints sample requests.
#[allow(clippy::print_stdout, reason = "an example prints to the terminal")]
pub(crate) async fn listener() -> Result<TcpListener, Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    let (address, key) = (listener.local_addr()?, key());
    println!("serving http://{address}\n");
    println!(
        "curl -i http://{address}/api/v1/person/enrich -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' \
         -d '{{\"email\":\"ada.marlowe@gmail.com\"}}'",
        key.reveal()
    );
    println!("curl -i http://{address}/hello");
    Ok(listener)
}
