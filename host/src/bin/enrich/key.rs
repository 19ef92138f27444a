//! `enrich key`

use enrich_host::SystemArrivals;
use enrich_lib::key::ApiKey;
use enrich_lib::model::Timestamp;
use enrich_lib::records::KeyRow;
use serde_json::json;

use crate::accounts::Place;
use crate::args::{Format, KeyCommand};
use crate::failure::Failure;
use crate::output;

pub fn run(place: Place, command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Create { workspace, label } => {
            let key = generate();
            let id = place.open()?.create_key(&workspace, &label, &key, SystemArrivals::now())?;
            output::line(key.reveal());
            output::remark(format!("{id} of {workspace}: keep the key now, it is not shown again"));
            Ok(())
        }
        KeyCommand::List { workspace, format } => list(&place.open()?.keys(&workspace)?, format),
        KeyCommand::Revoke { id } => {
            place.open()?.revoke_key(&id, SystemArrivals::now())?;
            output::line(format!("revoked {id}: within a second it is refused"));
            Ok(())
        }
    }
}

/// A new key, from the operating system's randomness.
pub fn generate() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
}

fn list(keys: &[KeyRow], format: Format) -> Result<(), Failure> {
    if format.json {
        let rows = keys.iter().map(|row| {
            json!({
                "id": row.id,
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
        [row.id.clone(), row.label.clone(), row.masked.clone(), created, used, revoked]
    });
    output::table(["ID", "LABEL", "KEY", "CREATED", "LAST USED", "REVOKED"], rows);
    Ok(())
}
