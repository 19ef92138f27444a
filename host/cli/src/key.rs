//! `enrich key`

use enrich_host::SystemArrivals;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::Timestamp;
use enrich_store::Actor;
use enrich_store::records::{self, KeyRow};
use enrich_store::usage::Day;
use serde_json::json;

use crate::accounts::{Accounts, StoreLocation};
use crate::args::{Format, KeyCommand};
use crate::failure::Failure;
use crate::output;

pub fn run(store: StoreLocation, command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Create { workspace, label, format } => {
            let mut accounts = store.open()?;
            let key = generate();
            let new = records::NewKey::new(&workspace, &label, &key);
            let actor = Actor::operator(SystemArrivals::now());
            let id = accounts.run(async |admin| admin.create_key(&new, &actor).await)?;
            if format.json {
                let id_text = id.to_string();
                let new = json!({
                    "id": id_text, "workspace": workspace.as_str(), "label": label, "key": key.reveal(),
                });
                return deliver(id, &new.to_string(), || revoke(&mut accounts, id));
            }
            deliver(id, key.reveal(), || revoke(&mut accounts, id))?;
            output::remark(format!("{id} of {workspace}: save the key now; it is not shown again"));
            Ok(())
        }
        KeyCommand::List { workspace, format } => {
            let today = Day::of(SystemArrivals::now());
            list(&store.open()?.run(async |admin| admin.keys(&workspace, today).await)?, format)
        }
        KeyCommand::Revoke { id, format } => {
            revoke(&mut store.open()?, id)?;
            if format.json {
                return output::json(&json!({ "id": id.to_string(), "revoked": true }));
            }
            output::line(format!("revoked {id}; requests with it are refused within a second"))
        }
    }
}

/// A stored key that has not been printed yet.
pub struct NewKey {
    pub id: KeyId,
    pub key: ApiKey,
}

/// Generates a new key with a cryptographically secure rng that the operating system seeds.
pub fn generate() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
}

fn revoke(accounts: &mut Accounts, id: KeyId) -> Result<(), Failure> {
    let actor = Actor::operator(SystemArrivals::now());
    accounts.run(async |admin| admin.revoke_key(id, &actor).await)
}

/// Prints `text`, which contains the new key `id`. Calls `revoke` if printing fails, because a key is shown only once.
pub fn deliver(id: KeyId, text: &str, revoke: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let Err(error) = output::write_line(text) else { return Ok(()) };
    let what = format!("cannot write the key to standard output: {error}");
    Err(match revoke() {
        Ok(()) => Failure::new(format!("{what}; {id} was revoked"))
            .advise("create another key with `enrich key create WORKSPACE LABEL`"),
        Err(failure) => Failure::new(format!("{what}; {id} could not be revoked: {}", failure.what))
            .advise(format!("revoke it with `enrich key revoke {id}`")),
    })
}

fn list(keys: &[KeyRow], format: Format) -> Result<(), Failure> {
    if format.json {
        let rows = keys.iter().map(|row| {
            json!({
                "id": row.id.to_string(),
                "label": row.label,
                "masked": row.masked,
                "created_at": output::rfc3339(row.created_at),
                "last_used_at": row.last_used_at.map(output::rfc3339),
                "revoked_at": row.revoked_at.map(output::rfc3339),
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let date = |time: Option<Timestamp>| time.map(output::rfc3339).unwrap_or_else(|| "-".to_owned());
    let rows = keys.iter().map(|row| {
        let dates = [Some(row.created_at), row.last_used_at, row.revoked_at].map(date);
        let [created, used, revoked] = dates;
        [row.id.to_string(), row.label.clone(), row.masked.clone(), created, used, revoked]
    });
    output::table(["ID", "LABEL", "KEY", "CREATED", "LAST USED", "REVOKED"], rows)
}
