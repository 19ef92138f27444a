//! The in-memory ports.

use std::time::Duration;

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{LookupId, ProfileUrl, Timestamp};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Workspace};
use futures_executor::block_on;

fn workspace(name: &str) -> Workspace {
    Workspace::new(name.parse().expect("a name"), Quota::default())
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

    let query = |email| Query::new(LookupId::from_bytes([1; 16]), workspace("demo").id, email);
    let resolve = |email| block_on(Resolver::find(&directory, &query(Email::parse(email).unwrap()))).unwrap();
    assert_eq!(resolve("ada.marlowe@gmail.com"), find("ada.marlowe@gmail.com").into());
    assert_eq!(resolve("ben.marlowe@gmail.com"), Answer::default());
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

/// A workspace without credits, or an invalid key, must not make the tables grow.
#[test]
fn reads_and_refusals_create_no_state() {
    let (accounts, keys) = (AccountTable::default(), KeyTable::default());
    accounts.advance(Duration::from_secs(1));
    let empty = format!("{accounts:?} {keys:?}");
    for n in 0..100_u8 {
        let workspace = workspace(&format!("workspace-{n}")).id;
        let hold = Hold::new(LookupId::from_bytes([n; 16]), workspace.clone(), 1);
        assert_eq!(accounts.balance(&workspace), Balance::default());
        assert_eq!(block_on(accounts.hold(&hold)).unwrap(), HoldOutcome::Insufficient(Shortage::Exhausted));
        assert!(block_on(accounts.settle(&hold, Settlement::Spend(1))).is_err());
        assert!(block_on(accounts.settle(&hold, Settlement::Release)).is_ok());
        assert_eq!(block_on(keys.find(&ApiKey::generate(|| n).digest())).unwrap(), None);
    }
    assert_eq!(format!("{accounts:?} {keys:?}"), empty);
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

#[test]
fn removes_window_exactly_at_its_expiry() {
    let quota = Quota::new(1, 1).unwrap();
    let opening = |name: &str, ms| quota.window(&name.parse().unwrap(), Timestamp::from_unix_ms(ms));
    let opens_at = opening("early-0", 1_000_000).opens_at().unix_ms();
    // Windows of different workspaces open at different times. These open together.
    let names = |group: &str, count: usize| {
        let all = (0_u32..).map(|n| format!("{group}-{n}"));
        let together = all.filter(|name| opening(name, opens_at).opens_at().unix_ms() == opens_at);
        together.take(count).collect::<Vec<_>>()
    };
    let (early, late) = (names("early", 100), names("late", 1_000));
    let expires_at = opening("early-0", opens_at).expires_at().unix_ms();
    for (last, is_kept) in [(expires_at - 1_000, true), (expires_at, false)] {
        let table = WindowTable::default();
        early.iter().for_each(|name| assert_eq!(block_on(table.count(&opening(name, opens_at))).unwrap(), 1));
        late.iter().for_each(|name| assert_eq!(block_on(table.count(&opening(name, last))).unwrap(), 1));
        assert_eq!(format!("{table:?}").contains("early-"), is_kept, "{last}");
    }
}

#[test]
fn keeps_only_windows_of_late_requests() {
    let table = WindowTable::default();
    for minute in 0..100 {
        let now = Timestamp::from_unix_ms(minute * 60_000);
        let window = Quota::default().window(&workspace("demo").id, now);
        assert_eq!(block_on(table.count(&window)).unwrap(), 1);
    }
    assert_eq!(format!("{table:?}").matches("window: ").count(), 2, "the current one and the one before");
}
