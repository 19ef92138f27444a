//! The in-memory ports.

use enrich_lib::credit::Balance;
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{ProfileUrl, Timestamp};
use enrich_lib::ports::{Keys, Windows};
use enrich_lib::window::{Quota, Workspace};
use futures_executor::block_on;

fn workspace(name: &str) -> Workspace {
    Workspace { id: name.parse().expect("a name"), quota: Quota::default() }
}

#[test]
fn finds_key_until_revoked() {
    let table = KeyTable::default();
    let (demos, others) = (ApiKey::generate(|| 1).digest(), ApiKey::generate(|| 2).digest());
    let find = |key: &KeyDigest| block_on(table.find(key)).unwrap();
    table.insert(demos, workspace("demo"));
    table.insert(others, workspace("other"));
    assert_eq!(find(&demos), Some(workspace("demo")));
    assert_eq!(find(&others), Some(workspace("other")));
    table.revoke(&demos);
    assert_eq!(find(&demos), None);
    assert_eq!(find(&others), Some(workspace("other")));
}

#[test]
fn finds_person_by_every_spelling_of_email() {
    let directory = Directory::default();
    let (ada, profile) =
        (Email::parse("ada.marlowe@gmail.com").unwrap(), ProfileUrl::from_name("ada").unwrap());
    directory.insert(&ada, profile.clone());
    let find = |email| directory.get(&Email::parse(email).unwrap());
    assert_eq!(find("AdaMarlowe+news@googlemail.com"), Some(profile));
    assert_eq!(find("ben.marlowe@gmail.com"), None);
    assert_eq!(format!("{directory:?}"), "Directory(1 people)");
}

#[test]
fn workspace_without_grant_has_no_credits() {
    let accounts = AccountTable::default();
    assert_eq!(accounts.balance(&workspace("demo").id), Balance::default());
    accounts.grant(&workspace("demo").id, 5).unwrap();
    assert_eq!(accounts.balance(&workspace("demo").id).available, 5);
    assert!(accounts.grant(&workspace("demo").id, u64::MAX).is_err());
    assert_eq!(accounts.balance(&workspace("other").id), Balance::default());
}

#[test]
fn removes_windows_of_idle_workspaces_only() {
    let table = WindowTable::default();
    let count = |name: String, seconds: u64| {
        let window =
            Quota::default().window(&name.parse().unwrap(), Timestamp::from_unix_ms(seconds * 1_000));
        block_on(table.count(&window)).unwrap()
    };
    for n in 0..10_000 {
        assert_eq!(count(format!("early-{n}"), 100), 1);
    }
    for n in 0..100_000 {
        assert_eq!(count(format!("late-{n}"), 1_000), 1);
    }
    for n in 0..100_000 {
        assert_eq!(count(format!("late-{n}"), 1_000), 2);
    }
    assert!(!format!("{table:?}").contains("early-"));
}
