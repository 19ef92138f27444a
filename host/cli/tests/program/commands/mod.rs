//! The commands with valid and invalid arguments, with and without a running server.

mod accounts;
mod config;
pub mod console;
mod keys;
mod lookup;
mod sample;
mod users;
mod while_serving;

pub use crate::enrich::within_a_second;
use crate::enrich::{Enrich, Server, bytes_under, eventually};
use serde_json::{Value, json};

const EMAIL: &str = "ada.marlowe@gmail.com";
const URL: &str = "https://www.linkedin.com/in/ada";
/// A person with a low match confidence.
const UNSURE: &str = "bea.marlowe@gmail.com";

/// Writes a file with one person.
fn one_person(enrich: &Enrich) -> String {
    let file = enrich.file("people.csv", format!("email,linkedin_url\n{EMAIL},{URL}\n"));
    file.to_str().unwrap().to_owned()
}

/// Returns the status of one lookup.
pub fn status(server: &Server, key: &str, email: &str) -> u16 {
    server.connect().enrich(key, email).unwrap().status
}

/// Returns the only key of `demo` as `key list` prints it, and checks its fields.
fn key_row(enrich: &Enrich, key: &str) -> Value {
    let list = enrich.json(&["key", "list", "demo", "--json"]);
    let Value::Object(row) = &list[0] else { panic!("{list}") };
    let fields: Vec<_> = row.keys().map(String::as_str).collect();
    let expected = "created_at created_by disabled_at expires_at id label last_used_at masked revoked_at state uses_30_days";
    assert_eq!(fields.join(" "), expected);
    assert!(key.starts_with(row["masked"].as_str().unwrap().trim_end_matches('…')));
    list[0].clone()
}
