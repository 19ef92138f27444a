//! `enrich key`

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use enrich_host::SystemArrivals;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::Actor;
use enrich_store::records::{KeyRow, KeyState, NewKey};
use enrich_store::usage::Day;
use serde_json::{Value, json};

use crate::accounts::{Accounts, StoreLocation};
use crate::args::{KeyChange, KeyCommand, KeyOutputArg};
use crate::failure::Failure;
use crate::output::{self, Format, rfc3339, second};
use crate::path::is_dash;
use crate::private_file;

pub fn run(store: StoreLocation, command: KeyCommand, format: Format) -> Result<(), Failure> {
    let mut accounts = store.open()?;
    match command {
        KeyCommand::Create { workspace, label, expires, test, output } => {
            let key = if test { generate().into_test() } else { generate() };
            create(&mut accounts, &workspace, &label, expires, &key, KeyOutput::open(output)?, format)
        }
        KeyCommand::List { workspace } => {
            let now = SystemArrivals::now();
            let keys = accounts.run(async |admin| admin.keys(&workspace, Day::from_timestamp(now)).await)?;
            list(&keys, now, format)
        }
        KeyCommand::Rotate { id, grace, output } => {
            rotate(&mut accounts, id, grace, KeyOutput::open(output)?, format)
        }
        KeyCommand::Set { id, change: KeyChange { enable, .. } } => {
            set_enabled(&mut accounts, id, enable)?;
            if format.json {
                return output::json(&json!({ "id": id.to_string(), "disabled": !enable }));
            }
            output::line(if enable {
                format!("enabled {id}")
            } else {
                format!("disabled {id}; requests with it are refused within a second")
            })
        }
        KeyCommand::Revoke { id } => {
            revoke(&mut accounts, id)?;
            if format.json {
                return output::json(&json!({ "id": id.to_string(), "revoked": true }));
            }
            output::line(format!("revoked {id}; requests with it are refused within a second"))
        }
    }
}

fn create(
    accounts: &mut Accounts,
    workspace: &WorkspaceId,
    label: &str,
    expires: Option<Duration>,
    key: &ApiKey,
    mut output: KeyOutput,
    format: Format,
) -> Result<(), Failure> {
    let now = SystemArrivals::now();
    let others = accounts.run(async |admin| admin.keys(workspace, Day::from_timestamp(now)).await)?;
    let is_current = |row: &KeyRow| matches!(row.state(now), KeyState::Active | KeyState::Disabled);
    if let Some(other) = others.iter().find(|other| other.label == label && is_current(other)) {
        output::remark(format!("warning: {} of {workspace} has the same label", other.id));
    }
    let expires_at = expires.map(|time| now + time);
    let new = NewKey { expires_at, ..NewKey::new(workspace, label, key) };
    let id = key.digest().key_id();
    let if_made = format!("revoke {id} if `enrich key list {workspace}` shows it, and create another key");
    accounts.change(&if_made, async |admin| admin.create_key(&new, &Actor::operator(now)).await)?;
    let about = json!({
        "id": id.to_string(),
        "workspace": workspace.as_str(),
        "label": label,
        "expires_at": expires_at.map(rfc3339),
    });
    output.deliver_key(id, key, about, format, || revoke(accounts, id))?;
    if !format.json {
        output::remark(format!("{id} of {workspace}: {}", output.advice()));
    }
    Ok(())
}

fn rotate(
    accounts: &mut Accounts,
    old: KeyId,
    grace: Duration,
    mut output: KeyOutput,
    format: Format,
) -> Result<(), Failure> {
    let (key, now) = (generate(), SystemArrivals::now());
    let old_expires_at = now + grace;
    let actor = Actor::operator(now);
    let if_made = format!(
        "if so, {old} expires at {} at the latest, and the new key is lost: create another one with `enrich key create`, \
         and revoke {} or {}, whichever `enrich key list WORKSPACE` shows",
        second(old_expires_at),
        key.digest().key_id(),
        key.clone().into_test().digest().key_id()
    );
    let rotated = accounts
        .change(&if_made, async |admin| admin.rotate_key(old, &key, None, old_expires_at, &actor).await);
    let key = rotated?;
    let id = key.digest().key_id();
    let about = json!({ "id": old.to_string(), "expires_at_latest": rfc3339(old_expires_at) });
    let about = json!({ "id": id.to_string(), "old": about });
    let delivered = output.deliver_key(id, &key, about, format, || revoke(accounts, id));
    delivered.map_err(|failure| Failure {
        what: format!("{}; {old} expires at {}", failure.what, second(old_expires_at)),
        ..failure
    })?;
    if !format.json {
        output::remark(format!(
            "{id} replaces {old}, which expires at {} at the latest; {}",
            second(old_expires_at),
            output.advice()
        ));
    }
    Ok(())
}

/// A stored key that has not been printed yet.
pub struct StoredKey {
    pub id: KeyId,
    pub key: ApiKey,
}

/// Generates a new key with a cryptographically secure rng that the operating system seeds.
pub fn generate() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
}

fn set_enabled(accounts: &mut Accounts, id: KeyId, is_enabled: bool) -> Result<(), Failure> {
    let actor = Actor::operator(SystemArrivals::now());
    accounts.run(async |admin| admin.set_key_enabled(id, is_enabled, &actor).await)
}

fn revoke(accounts: &mut Accounts, id: KeyId) -> Result<(), Failure> {
    let actor = Actor::operator(SystemArrivals::now());
    accounts.run(async |admin| admin.revoke_key(id, &actor).await)
}

/// Where a new key is written, once.
pub enum KeyOutput {
    Stdout,
    /// A new file that only its owner can read. Removed unless the key is written.
    File {
        path: PathBuf,
        file: File,
        is_written: bool,
    },
}

impl KeyOutput {
    /// Creates the file before the key, so that there is no key that cannot be written.
    fn open(KeyOutputArg { output }: KeyOutputArg) -> Result<Self, Failure> {
        let Some(path) = output.filter(|path| !is_dash(path)) else { return Ok(Self::Stdout) };
        match private_file::create_new(&path) {
            Ok(file) => Ok(Self::File { path, file, is_written: false }),
            Err(error) => Err(Failure::new(format!("cannot create {}: {error}", path.display()))
                .advise("choose a new file in a directory that exists")),
        }
    }

    /// Writes a new key: alone, or with `--json` as a member of `about`. A file contains the key alone, and standard
    /// output then receives `about` without it.
    fn deliver_key(
        &mut self,
        id: KeyId,
        key: &ApiKey,
        mut about: Value,
        format: Format,
        revoke: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Stdout if format.json => {
                about["key"] = key.reveal().into();
                self.deliver(id, &about.to_string(), revoke)
            }
            _ => {
                self.deliver(id, key.reveal(), revoke)?;
                let shown = if format.json { output::json(&about) } else { Ok(()) };
                shown.map_err(|failure| failure.advise(format!("{id}: {}", self.advice())))
            }
        }
    }

    /// Writes `text`, which contains the new key `id`. Calls `revoke` if this fails, because a key is shown
    /// only once.
    pub fn deliver(
        &mut self,
        id: KeyId,
        text: &str,
        revoke: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Err(error) = self.write(text) else { return Ok(()) };
        let what = match self {
            Self::Stdout => format!("cannot write the key to standard output: {error}"),
            Self::File { path, .. } => format!("cannot write the key to {}: {error}", path.display()),
        };
        Err(match revoke() {
            Ok(()) => Failure::new(format!("{what}; {id} was revoked"))
                .advise("create another key with `enrich key create WORKSPACE LABEL`"),
            Err(failure) => Failure::new(format!("{what}; {id} could not be revoked: {}", failure.what))
                .advise(format!("revoke it with `enrich key revoke {id}`")),
        })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => output::write_line(text),
            Self::File { path, file, is_written } => {
                file.write_all(format!("{text}\n").as_bytes())?;
                file.sync_all()?;
                private_file::sync_directory(path);
                *is_written = true;
                Ok(())
            }
        }
    }

    /// Returns what the user does with the key that was written.
    fn advice(&self) -> String {
        match self {
            Self::Stdout => "save the key now; it is not shown again".to_owned(),
            Self::File { path, .. } => format!("the key is in {} and is not shown again", path.display()),
        }
    }
}

impl Drop for KeyOutput {
    fn drop(&mut self) {
        if let Self::File { path, is_written: false, .. } = self {
            let _ = fs::remove_file(path); // its key was not created, is revoked, or must be revoked
        }
    }
}

fn list(keys: &[KeyRow], now: Timestamp, format: Format) -> Result<(), Failure> {
    if format.json {
        let rows = keys.iter().map(|row| {
            json!({
                "id": row.id.to_string(),
                "label": row.label,
                "masked": row.masked,
                "state": row.state(now).as_str(),
                "created_at": rfc3339(row.created_at),
                "created_by": row.created_by,
                "last_used_at": row.last_used_at.map(rfc3339),
                "uses_30_days": row.uses,
                "expires_at": row.expires_at.map(rfc3339),
                "disabled_at": row.disabled_at.map(rfc3339),
                "disabled_by": row.disabled_by,
                "revoked_at": row.revoked_at.map(rfc3339),
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let rows = keys.iter().map(|row| {
        let [used, expires] =
            [row.last_used_at, row.expires_at].map(|time| time.map_or_else(|| "-".to_owned(), second));
        [
            row.id.to_string(),
            row.label.clone(),
            row.masked.clone(),
            row.state(now).as_str().to_owned(),
            second(row.created_at),
            row.created_by.clone(),
            used,
            output::grouped(row.uses),
            expires,
        ]
    });
    let header = ["ID", "LABEL", "KEY", "STATE", "CREATED", "BY", "LAST USED", "USES (30 DAYS)", "EXPIRES"];
    output::table(header, rows)
}
