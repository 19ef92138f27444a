//! A gateway with its own tenants and its own rate limiter, which uses only the credits and the people of
//! this crate.
//!
//! `cargo run -p enrich-sqlite --example own_ports`
#![allow(clippy::print_stdout, reason = "an example shows something")]
#![allow(clippy::disallowed_methods, reason = "a gateway reads its own clocks")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::Request;
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
use enrich_lib::ports::{Keys, Windows};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Window, Workspace};
use enrich_lib::wire;
use enrich_sqlite::{DataDir, Ledger, People, accounts, complete, run_on_thread};
use enrich_store::Clocks;

/// The gateway's tenants and their keys. A map here; in production, for example, a cache in front of your own
/// store.
struct Tenants(HashMap<KeyDigest, Workspace>);

#[async_trait]
impl Keys for Tenants {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Ok(self.0.get(key).cloned())
    }
}

/// The gateway's rate limiter. The library computes the window of a request and compares the count; the
/// limiter only counts.
#[derive(Default)]
struct Limiter(Mutex<HashMap<(String, u64), u64>>);

#[async_trait]
impl Windows for Limiter {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let name = (window.workspace().to_string(), window.number());
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name).or_default(); // in production: keep it until window.expires_at()
        *count += 1;
        Ok(*count)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    look_up_three().map(drop)
}

/// Looks up three people. Returns the statuses and the available credits.
fn look_up_three() -> Result<(Vec<u16>, u64), Box<dyn Error>> {
    let (now, started) = (Timestamp::from_unix_ms(1_700_000_000_000), Instant::now()); // your clocks
    let acme = Workspace::new("acme".parse()?, Quota::new(2, 60)?);
    let key = ApiKey::generate(rand::random);

    // From this crate: credits and people, in a separate data directory.
    let files = tempfile::tempdir()?;
    let dir = DataDir::create(files.path())?;
    complete(accounts(&dir)?.create_workspace(&acme.id, acme.quota, 10, now))?;
    let people = People::open(&dir, People::CONFIDENCE_MIN, rand::random())?;
    let mut import = people.import()?;
    import.add(&Email::parse("ada.marlowe@gmail.com")?, &ProfileUrl::from_name("ada-marlowe")?, 1.0)?;
    import.finish()?;
    people.refresh()?;
    // A server calls `tick` of the ledger four times a second, and `refresh` of the people twice. Otherwise, lost holds
    // do not expire, and grants, imports and opt-outs by the commands do not take effect.
    let clocks = Clocks { wall: now, elapsed: started.elapsed() };
    let ledger = Arc::new(Ledger::open(&dir, clocks, move || started.elapsed(), run_on_thread)?);

    let keys = Tenants(HashMap::from([(key.digest(), acme.clone())]));
    let (keys, windows) = (Arc::new(keys), Arc::new(Limiter::default()));
    let service = Service::new(keys, windows, ledger.clone(), Arc::new(people));
    let mut statuses = Vec::new();
    for email in ["Ada.Marlowe@gmail.com", "bea.marlowe@gmail.com", "once.more@gmail.com"] {
        let body = format!(r#"{{"email":"{email}"}}"#);
        let request = Request::new(Some(key.digest()), Ok(body.into()));
        let arrival = Arrival::new(now, rand::random());
        let reply = futures_executor::block_on(service.answer(arrival, request)); // `.await` in a handler
        let response = wire::response(&reply);
        println!("{response:#?}");
        statuses.push(response.status().as_u16());
    }
    let balance = ledger.balance(&acme.id)?;
    println!("{balance:?}");
    Ok((statuses, balance.available))
}

/// The third status is that of the gateway's own limiter.
#[test]
fn limits_requests_and_spends_one_credit() {
    assert_eq!(look_up_three().unwrap(), (vec![200, 404, 429], 9));
}
