//! The sample data of `enrich serve --sample`: invented people, a workspace and a key.

use std::path::Path;

use enrich_host::SystemArrivals;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, People, accounts, complete};
use enrich_store::records::NewKey;
use enrich_store::usage::Day;
use enrich_store::users::Role;
use enrich_store::{Accounts, Actor, StoreError};

use crate::commands::key::{self, StoredKey};
use crate::commands::user::NewLink;
use crate::failure::Failure;
use crate::files::{Columns, Person, RowError, read_people};
use crate::private_file::with_name_suffix;
use crate::public_url::PublicUrl;

const PEOPLE: &str = include_str!("../../../sample/people.csv");
const WORKSPACE: &str = "demo";
const CREDITS: u64 = 1_000;
const KEY_LABEL: &str = "sample";

/// The email of the user who can sign in to the web application.
pub const ADMIN: &str = "admin@example.com";

/// The email of a person in the sample.
pub const EMAIL: &str = "ada.marlowe.sample001@gmail.com";

/// Creates the data directory atomically and returns its key.
pub fn create(data: &Path) -> Result<StoredKey, Failure> {
    let partial = with_name_suffix(data, &format!(".partial-{}", std::process::id()));
    let created = fill(&DataDir::create(&partial)?).and_then(|key| {
        std::fs::rename(&partial, data)
            .map_err(|e| Failure::file("create", data, e).advise("choose another directory with --data"))?;
        Ok(key)
    });
    if created.is_err() {
        // Removes only the files created above. The original error matters more than a failed removal.
        let _ = std::fs::remove_dir_all(&partial);
    }
    created
}

fn fill(dir: &DataDir) -> Result<StoredKey, Failure> {
    let people = People::open(dir, People::CONFIDENCE_MIN, rand::random())?;
    let columns = Columns::default();
    let mut import = people.import()?;
    for row in read_people(PEOPLE.as_bytes(), &columns).map_err(|error| Failure::new(error.to_string()))? {
        let Person { email, profile, confidence } = row.map_err(|error| match error {
            RowError::Rejected { line, reason } => {
                Failure::new(format!("sample people, line {line}: {reason}"))
            }
            RowError::Unreadable(error) => Failure::new(error.to_string()),
        })?;
        import.add(&email, &profile, confidence)?;
    }
    import.finish()?;

    let (workspace, now) = (workspace()?, SystemArrivals::now());
    let mut admin = accounts(dir)?;
    complete(admin.create_workspace(&workspace, Quota::default(), CREDITS, now))?;
    let key = key::generate();
    let id = complete(admin.create_key(&NewKey::new(&workspace, KEY_LABEL, &key), &Actor::operator(now)))?;
    Ok(StoredKey { id, key })
}

/// Creates an invitation of an admin.
pub fn invitation(url: &PublicUrl) -> Result<NewLink, Failure> {
    let admin = ADMIN.parse().map_err(|error| Failure::new(format!("{error}")))?;
    Ok(NewLink::join(url, workspace()?, admin, Role::Admin))
}

/// Returns whether the workspace of a sample has no user. A workspace of this name without the sample's key
/// is not one.
pub async fn has_no_user(accounts: &mut Accounts) -> Result<bool, Failure> {
    let (workspace, today) = (workspace()?, Day::from_timestamp(SystemArrivals::now()));
    let is_sample = match accounts.keys(&workspace, today).await {
        Ok(keys) => keys.iter().any(|key| key.label == KEY_LABEL),
        Err(StoreError::UnknownWorkspace(_)) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(is_sample && accounts.users(Some(&workspace)).await?.is_empty())
}

fn workspace() -> Result<WorkspaceId, Failure> {
    WORKSPACE.parse().map_err(|error| Failure::new(format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use enrich_lib::email::Email;

    #[test]
    fn everybody_in_the_sample_can_be_imported_and_the_one_to_try_is_among_them() {
        let people: Vec<_> = read_people(PEOPLE.as_bytes(), &Columns::default()).unwrap().collect();
        assert_eq!(people.len(), 300);
        let example = Email::parse(EMAIL).unwrap();
        let mut emails = people.into_iter().map(|row| row.unwrap().email);
        assert!(emails.any(|email| email == example));
    }
}
